"""Every kind that reads lowered programs, on real records: trained, judged, and in a search."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tensorese.cli import run
from tensorese.features.lowered import LoweredCache
from tensorese.measure.farm import Farm
from tensorese.measure.lowering import RowSource, lowering_farm
from tensorese.models.catalog import user_models
from tensorese.records.nouns import Measurement, Status
from tensorese.records.store import Split, Store
from tensorese.search.rankers.by_name import ranker_named
from tensorese.search.rankers.guided import read_lowered
from tensorese.search.rankers.staged import Staged
from tensorese.targets import Target
from tensorese.training.recipes import recipe_class, trainable
from tensorese.training.recipes.base import DataSelection

pytestmark = pytest.mark.tvm

DATA = Path(__file__).parents[2] / "data" / "cpu"
OWN = "znver4-2c"
KINDS = [
    kind
    for kind in trainable()
    if any(one.lowers for one in recipe_class(kind).named(kind, "default", DataSelection()).needs())
]
QUICK = {"xgboost": ("rounds=8", "choose=false"), "lightgbm": ("rounds=8", "choose=false")}


def _part(folder: Path, tasks: int, split: Split, per_task: int = 14) -> None:
    """A small store of real measurements."""
    with Store.open(DATA) as store, Store.open(folder, create=True) as part:
        table = store.table(["workload_id"], platform=OWN, status=Status.OK, split=split)
        counts = Counter(table["workload_id"].to_pylist())
        large = sorted(name for name, count in counts.items() if count >= per_task)
        for workload in large[:tasks]:
            rows = store.measurements(
                platform=OWN, workload=workload, status=Status.OK, split=split
            )
            part.ingest(itertools.islice(rows, per_task))


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts")
    _part(folder / "train", 6, "train")
    _part(folder / "test", 3, "test")
    return folder


@pytest.fixture(scope="module")
def farm() -> Iterator[Farm]:
    with lowering_farm(_target(), workers=2) as team:
        yield team


def _target() -> Target:
    return Target.parse('{"kind": "llvm", "mcpu": "znver4", "num-cores": 2}')


def _measured(folder: Path) -> list[Measurement]:
    with Store.open(folder) as store:
        return list(store.measurements())


def _trained(kind: str, parts: Path, out: Path) -> None:
    command = ["train", kind, "--data", str(parts / "train"), "--fold", "-1", "--out", str(out)]
    for one in QUICK.get(kind, ("epochs=2",)):
        command += ["--set", one]
    assert run([*command, "--device", "cpu"]) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_trained_judged_and_ranks_in_a_search(
    kind: str, parts: Path, farm: Farm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind in ("xgboost", "lightgbm"):
        pytest.importorskip(kind)
    _trained(kind, parts, tmp_path / "model")
    capsys.readouterr()
    verb = ["eval", str(tmp_path / "model"), "--data", str(parts / "test"), "--json"]
    assert run(verb) == 0
    judged = json.loads(capsys.readouterr().out)
    assert judged["tasks"] == 3 and 0 < judged["top1"] <= judged["top5"] <= 1
    target = _target()
    source = RowSource(target, lambda: farm)
    ranker, line = ranker_named(
        str(tmp_path / "model"), target.platform(OWN), features=read_lowered(source)
    )
    assert isinstance(ranker, Staged) and not ranker.needs.lowers
    assert f"{kind} on lowered features" in line and "it judges short lists of the model" in line
    measurements = _measured(parts / "test")
    ranker.update(measurements[:12])
    program = measurements[0].program
    rows = np.array(
        [m.program.decisions for m in measurements if m.program.sketch == program.sketch]
    )
    scores = ranker.score(program.workload, OWN, program.sketch, rows)
    assert np.isfinite(scores).all() and len(np.unique(scores)) > 1
    assert 0 < source.asked and ranker.score(program.workload, OWN, program.sketch, rows[:0]).shape


def test_what_was_lowered_is_beside_the_store_and_said(
    parts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "fresh"
    _part(store, 2, "train", per_task=5)
    command = ["train", "tenset-mlp", "--data", str(store), "--fold", "-1", "--set", "epochs=1"]
    assert run([*command, "--out", str(tmp_path / "model")]) == 0
    assert "lowering 10 of 10 programs" in capsys.readouterr().err
    with Store.open(store) as opened:
        target = Target.from_json(opened.targets()[OWN])
    assert len(LoweredCache(store, target)) == 10
    assert run([*command, "--out", str(tmp_path / "model")]) == 0
    assert "lowering" not in capsys.readouterr().err


def test_a_model_of_lowered_programs_tunes(
    parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    model = user_models() / "mine"
    _trained("tenset-mlp", parts, model)
    capsys.readouterr()
    tune = ["tune", "zoo:bert_tiny@1x16", "--tasks", "matmul_add_gelu", "--no-compile", "--json"]
    for number, chosen in enumerate((["--model", str(model)], ["--platform", OWN])):
        out, trials = tmp_path / f"run{number}", ["6", "0"][number]
        assert run([*tune, *chosen, "--trials", trials, "--out", str(out)]) == 0
        lines = capsys.readouterr().out
        assert "tenset-mlp on lowered features" in lines and "short lists" in lines
    with Store.open(tmp_path / "run0" / "store") as store:
        origins = {m.origin for m in store.measurements()}
    assert any("guided:" in origin for origin in origins)
