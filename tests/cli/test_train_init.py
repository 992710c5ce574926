"""`train --init` on real records of two platforms: gone on from, judged, tuned with."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path

import pytest

from tensorese.cli import run
from tensorese.models.base import load_model
from tensorese.records.nouns import Status
from tensorese.records.store import Split, Store

pytestmark = pytest.mark.tvm

DATA = Path(__file__).parents[2] / "data" / "cpu"
SOURCE, TARGET = "emeraldrapids-16c", "znver4-2c"
PER_TASK = 12
SMALL = {"atformer": ("width=16", "heads=2"), "pacm": ("width=16",)}


def _part(folder: Path, split: Split, tasks: int) -> Path:
    """The same few programs on two platforms; what is lowered is kept beside them."""
    with Store.open(DATA) as store, Store.open(folder, create=True) as part:
        here = store.table(["workload_id", "platform", "status"]).to_pylist()
        rows_of = Counter((r["workload_id"], r["platform"]) for r in here if r["status"] == "ok")
        both = [
            name
            for name in sorted(store.best(TARGET, split=split))
            if all(rows_of[name, platform] >= PER_TASK for platform in (SOURCE, TARGET))
        ][:tasks]
        for workload, platform in itertools.product(both, (SOURCE, TARGET)):
            rows = store.measurements(
                platform=platform, workload=workload, status=Status.OK, split=split
            )
            part.ingest(itertools.islice(rows, PER_TASK))
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[Split, Path]:
    place = tmp_path_factory.mktemp("records")
    return {"train": _part(place / "train", "train", 8), "test": _part(place / "test", "test", 4)}


def _train(kind: str, data: Path, out: Path, platform: str, *more: str) -> int:
    quick = ["epochs=2", "size=16", *SMALL[kind]]
    settings = itertools.chain.from_iterable(("--set", one) for one in quick)
    where = ["--data", str(data), "--platform", platform, "--fold", "-1", "--out", str(out)]
    return run(["train", kind, *where, *settings, "--device", "cpu", *more])


@pytest.mark.parametrize("kind", SMALL)
def test_a_model_of_one_platform_goes_on_with_another(
    kind: str, folders: dict[Split, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert _train(kind, folders["train"], first, SOURCE) == 0
    capsys.readouterr()
    more = ("--init", str(first), "--freeze", "encoder")
    assert _train(kind, folders["train"], second, TARGET, *more) == 0
    said = capsys.readouterr().err
    assert f"heads copied: {SOURCE}'s for {TARGET}; left as it was: its encoder" in said
    before, after = (load_model(path).tensors(half=False) for path in (first, second))
    for name, tensor in before.items():
        if name.startswith("body.encoder."):
            assert (tensor == after[name]).all(), name
    asked = ["eval", str(second), "--data", str(folders["test"]), "--platform", TARGET, "--json"]
    assert run(asked) == 0
    judged = json.loads(capsys.readouterr().out)
    assert judged["tasks"] == 4 and 0.0 < judged["top1"] <= 1.0


def test_a_model_that_went_on_learns_in_a_tuning_run(
    folders: dict[Split, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, out = tmp_path / "first", tmp_path / "second", tmp_path / "run"
    assert _train("atformer", folders["train"], first, SOURCE, "--preset", "M") == 0
    assert _train("atformer", folders["train"], second, TARGET, "--init", str(first)) == 0
    capsys.readouterr()
    tune = ["tune", "zoo:bert_tiny@1x16", "--tasks", "dense", "--trials", "6", "--no-compile"]
    assert run([*tune, "--model", str(second), "--out", str(out), "--json"]) == 0
    assert "an atformer on lowered features" in capsys.readouterr().out
    with Store.open(out / "store") as store:  # it learns from the run, as what ships does
        assert any("guided:" in m.origin for m in store.measurements())
