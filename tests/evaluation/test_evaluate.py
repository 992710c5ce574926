"""A model is judged on what it has not seen, whatever its kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from models_support import MAKERS, physics_model

from cpu_records_support import cpu_measurements
from lowered_support import keep_made_up
from tensorese.evaluation.evaluate import evaluate_model
from tensorese.features.programs import DataError, read_programs
from tensorese.models.base import Card, ModelError, kinds, load_model
from tensorese.models.catalog import SHIPPED
from tensorese.records.store import Store

pytestmark = pytest.mark.null

PLATFORMS = ("lake-1c", "lake-2c")
DATA = Path(__file__).parents[2] / "data"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    with Store.open(folder, create=True) as store:
        store.ingest(cpu_measurements(PLATFORMS, tasks=6))
    keep_made_up(folder)
    return folder


@pytest.mark.parametrize("kind", kinds())
def test_every_kind_is_judged_on_unseen_workloads(kind: str, store: Path) -> None:
    with Store.open(store) as opened:
        programs = read_programs([opened])
        model = MAKERS[kind](programs.spec(), "cpu", PLATFORMS)
        model.card = Card(training_workloads=programs.tasks[:2])
        result = evaluate_model(model, [opened], platform="lake-1c")
    assert (result["platform"], result["tasks"], result["small_tasks"]) == ("lake-1c", 4, 0)
    assert 0 < result["top1"] <= result["top5"] <= result["top10"] <= 1
    assert 0 < result["random_top1_pooled"] < result["random_top5_pooled"] <= 1
    assert not result["weighted"] and result["networks"] == []
    assert not {cost["task"] for cost in result["costs"]} & set(programs.tasks[:2])


def test_thin_tasks_are_fewer_programs_not_fewer_tasks(store: Path) -> None:
    with Store.open(store) as opened:
        model = physics_model(PLATFORMS)
        full, thin = (
            evaluate_model(model, [opened], platform="lake-1c", thin=flag) for flag in (False, True)
        )
    assert full["tasks"] == thin["tasks"] and full["random_top1"] > thin["random_top1"]


def test_what_cannot_be_judged(store: Path) -> None:
    with Store.open(store) as opened:
        model = physics_model(PLATFORMS)
        with pytest.raises(ModelError, match="lake-1c, lake-2c fit; name one: --platform"):
            evaluate_model(model, [opened])
        with pytest.raises(ModelError, match="must share a platform"):
            evaluate_model(physics_model(("zen-2c",)), [opened])
        model.card = Card(training_workloads=read_programs([opened]).tasks)
        with pytest.raises(DataError, match="of 6 workloads on lake-1c 6 were trained on"):
            evaluate_model(model, [opened], platform="lake-1c")


def test_the_shipped_zen_4_model_by_the_papers_metric() -> None:
    """A mean over tasks hides one product of BERT that takes most of what is lost."""
    with Store.open(DATA / "cpu") as opened:
        result = evaluate_model(load_model(SHIPPED / "znver4-2c"), [opened])
    assert result["platform"] == "znver4-2c" and result["weighted"] and not result["unlisted"]
    assert result["top1"] == pytest.approx(0.878, abs=0.002)
    assert result["top1_pooled"] == pytest.approx(0.656, abs=0.002)
    worst = min(result["networks"], key=lambda one: float(one["top1"]))
    assert worst["network"] == "bert_base@1x128"
    first = result["costs"][0]
    assert (first["network"], first["name"]) == ("bert_base@1x128", "matmul_add_add")
    assert first["share"] > 0.5
