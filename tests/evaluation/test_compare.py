"""All models on all platforms, on made-up records."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from models_support import MAKERS, ensemble_model, physics_model, trees_model

from cpu_records_support import cpu_measurements
from lowered_support import keep_made_up
from tensorese.evaluation.compare import Comparison, compare
from tensorese.evaluation.lowered_programs import ready_for
from tensorese.evaluation.rows import ComparedRow
from tensorese.features.programs import DataError, ProgramSet, read_programs
from tensorese.models.base import Card, kinds, save_model
from tensorese.records.store import Store
from tensorese.training.trees import baselines, installed_trees

pytestmark = pytest.mark.null

PLATFORMS = ("lake-1c", "lake-2c")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    with Store.open(folder, create=True) as store:
        store.ingest(cpu_measurements(PLATFORMS, tasks=8))
        store.ingest(cpu_measurements(PLATFORMS, tasks=4, split="test", seed=1))
        store.ingest(cpu_measurements(("zen-2c",), tasks=4, split="test", seed=1))
    keep_made_up(folder)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "both"
    return save_model(folder, ensemble_model(PLATFORMS), Card())


def _rows(rows: list[ComparedRow], system: str) -> dict[str, ComparedRow]:
    return {row.platform: row for row in rows if row.system == system}


def test_models_and_random_order(store: Path, model: Path) -> None:
    with Store.open(store) as opened:
        rows = compare([opened], [model])
    random, mine = _rows(rows, "random order"), _rows(rows, "both")
    assert set(random) == set(mine) == {*PLATFORMS, "zen-2c"}
    assert mine["lake-1c"].note == "" and mine["zen-2c"].note == "head lake-2c"
    for platform in PLATFORMS:
        assert mine[platform].figures["tasks"] == 4
        assert len(mine[platform].ratios) == 4
        assert 0 < random[platform].figures["top1"] < random[platform].figures["top5"] <= 1
        assert 0 < mine[platform].pooled["top1_pooled"] <= mine[platform].pooled["top5_pooled"] <= 1


@pytest.mark.parametrize("kind", kinds())
def test_every_kind_of_folder_is_judged(kind: str, store: Path, tmp_path: Path) -> None:
    with Store.open(store) as opened:
        spec = read_programs([opened], split="test").spec()
        made = MAKERS[kind](spec, "cpu", PLATFORMS)
        folder = save_model(tmp_path / kind, made, Card())
        rows = _rows(compare([opened], [folder], platforms=["lake-1c"]), kind)
        comparison = Comparison(opened, ["lake-1c"])
        programs = ready_for([made.needs], comparison.programs, [opened])
        scores = made.rank(made.read_all(programs), "lake-1c").astype(np.float64)
    wanted = [result.ratio(1) for result in comparison.judge("lake-1c", scores)]
    assert rows["lake-1c"].figures["top1"] == pytest.approx(np.mean(wanted), abs=0.05)
    assert rows["lake-1c"].note == ""


def test_models_of_the_same_features_read_the_records_once(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorese.evaluation import inputs

    reads = []

    def counted(model: inputs.Model, programs: ProgramSet) -> object:
        reads.append(model.kind)
        return model.read_all(programs)

    monkeypatch.setattr(inputs, "inputs_of", counted)
    folders = [
        save_model(tmp_path / made.kind, made, Card())
        for made in (physics_model(PLATFORMS), trees_model(PLATFORMS))
    ]
    with Store.open(store) as opened:
        compare([opened], folders)
    assert reads == ["physics"]


def test_the_oracle_is_of_second_measurements(store: Path, model: Path, tmp_path: Path) -> None:
    with Store.open(tmp_path / "again", create=True) as again, Store.open(store) as opened:
        second = cpu_measurements(PLATFORMS, tasks=4, split="test", seed=1)
        again.ingest(m for m in second if m.platform.name == "lake-1c")
        rows = compare([opened], [model], again=[again])
    oracle, mine = _rows(rows, "oracle"), _rows(rows, "both")
    assert set(oracle) == {"lake-1c"}
    assert oracle["lake-1c"].figures["top1"] > 0.9
    assert 0.9 < oracle["lake-1c"].pooled["top1_pooled"] <= 1.0
    # The model is held against it on the same programs.
    assert set(mine["lake-1c"].twice[5]) == set(oracle["lake-1c"].twice[5])
    assert all(0 < ratio <= 1 for ratio in mine["lake-1c"].twice[1].values())
    assert mine["lake-2c"].twice == {}


def test_a_ranking_is_held_against_the_oracle_on_its_programs(store: Path, tmp_path: Path) -> None:
    with Store.open(tmp_path / "again", create=True) as again, Store.open(store) as opened:
        measured = cpu_measurements(PLATFORMS, tasks=4, split="test", seed=1)
        second = [m for m in measured if m.platform.name == "lake-1c"][::2]
        again.ingest(second)
        comparison = Comparison(opened, ["lake-1c"], [again])
        latency = comparison.programs.latency[:, 0]
        twice = np.isin(comparison.programs.ids, sorted({m.program.id for m in second}))
        # Perfect where there is a second time, and the worst first elsewhere.
        row = comparison.row("lake-1c", "me", np.where(twice, -latency, latency + 1))
        assert row is not None
        assert set(row.twice[1].values()) == {1.0}
        assert row.figures["top1"] < 1.0


def test_networks_weigh_the_tasks(store: Path, tmp_path: Path) -> None:
    with Store.open(store) as opened:
        one, two, *_ = Comparison(opened, ["lake-1c"]).programs.tasks
        file = tmp_path / "networks.json"
        file.write_text(json.dumps({"net": {one: 1, two: 3}}))
        comparison = Comparison(opened, ["lake-1c"], networks=file)
        programs = comparison.programs
        best_last = np.where(programs.task == 0, programs.latency[:, 0], -programs.latency[:, 0])
        row = comparison.row("lake-1c", "me", best_last)
    assert row is not None and row.pooled["weighted"] and row.pooled["unlisted"] == 2
    bounds = [
        (programs.latency[programs.task == k, 0].min(), programs.latency[programs.task == k, 0])
        for k in (0, 1)
    ]
    (a, of_a), (b, _) = bounds
    assert row.pooled["top1_pooled"] == pytest.approx((a + 3 * b) / (of_a.max() + 3 * b))
    (cost,) = row.pooled["costs"]
    assert (cost["network"], cost["task"], cost["share"]) == ("net", one, 1.0)
    assert cost["name"] == "matmul" and len(cost["shapes"]) == 3


def test_baselines_get_training_and_test_programs(store: Path) -> None:
    asked = []

    def perfect(
        train: ProgramSet, test: ProgramSet, platform: str
    ) -> list[tuple[str, npt.NDArray[np.float64]]]:
        asked.append((len(train.tasks), len(test.tasks), platform))
        assert not set(train.tasks) & set(test.tasks)
        return [("knows", -test.latency[:, test.head(platform)])]

    with Store.open(store) as opened:
        rows = compare([opened], [], platforms=["lake-1c"], baselines=perfect)
    assert asked == [(8, 4, "lake-1c")]
    assert _rows(rows, "knows")["lake-1c"].pooled["top1_pooled"] == 1.0


@pytest.mark.skipif(not installed_trees(), reason="neither LightGBM nor XGBoost is installed")
def test_trees_learn_from_training_rows(store: Path) -> None:
    with Store.open(store) as opened:
        rows = compare([opened], [], platforms=["lake-1c"], baselines=baselines)
    random = _rows(rows, "random order")["lake-1c"].figures["top1"]
    for kind in installed_trees():
        assert _rows(rows, kind)["lake-1c"].figures["top1"] > random + 0.1


def test_a_model_that_has_seen_the_tasks_is_refused(store: Path, tmp_path: Path) -> None:
    with Store.open(store) as opened:
        card = Card(training_workloads=tuple(opened.workloads()))
        folder = save_model(tmp_path / "cheat", physics_model(PLATFORMS), card)
        with pytest.raises(DataError, match="cheat was trained on 4 of these 4"):
            compare([opened], [folder], platforms=["lake-1c"])
