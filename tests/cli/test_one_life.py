"""A TLP of the user's own, trained on real records, in every place that takes a model."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path

import pytest

from tensorese.cli import run
from tensorese.models.catalog import user_models
from tensorese.onboard.session import Onboarding, learn, start_at
from tensorese.records.nouns import Status
from tensorese.records.store import Split, Store
from tensorese.targets import Target

pytestmark = pytest.mark.tvm

DATA = Path(__file__).parents[2] / "data" / "cpu"
OWN, OTHER = "znver4-2c", "znver3-2c"


def _part(folder: Path, platform: str, tasks: int, split: Split, per_task: int = 24) -> None:
    """A small store of real measurements."""
    with Store.open(DATA) as store, Store.open(folder, create=True) as part:
        table = store.table(["workload_id"], platform=platform, status=Status.OK, split=split)
        counts = Counter(table["workload_id"].to_pylist())
        large = sorted(name for name, count in counts.items() if count >= per_task)
        for workload in large[:tasks]:
            rows = store.measurements(
                platform=platform, workload=workload, status=Status.OK, split=split
            )
            part.ingest(itertools.islice(rows, per_task))


def test_a_users_tlp_is_treated_as_what_ships(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    _part(tmp_path / "train", OWN, tasks=12, split="train")
    _part(tmp_path / "test", OWN, tasks=4, split="test")
    model = user_models() / "mine"
    data = ["--data", str(tmp_path / "train"), "--platform", OWN]
    train = ["train", "tlp", *data, "--fold", "-1", "--set", "epochs=3", "--out", str(model)]
    assert run(train) == 0
    capsys.readouterr()

    assert run(["eval", str(model), "--data", str(tmp_path / "test"), "--json"]) == 0
    judged = json.loads(capsys.readouterr().out)
    assert judged["tasks"] == 4 and judged["top1"] > judged["random_top1"] / 2

    compare = ["compare", "--data", str(tmp_path / "test"), "--model", str(model), "--json"]
    assert run(compare) == 0
    rows = json.loads(capsys.readouterr().out)
    (row,) = [row for row in rows if row["system"] == "mine"]
    assert row["top1"] == pytest.approx(judged["top1"])

    tune = ["tune", "zoo:bert_tiny@1x16", "--tasks", "dense", "--trials", "6", "--no-compile"]
    for number, chosen in enumerate((["--model", str(model)], ["--platform", OWN])):
        out = tmp_path / f"run{number}"
        assert run([*tune, *chosen, "--out", str(out), "--json"]) == 0
        lines = capsys.readouterr().out
        assert "a tlp on matrix features" in lines and "mine" in lines
        with Store.open(out / "store") as store:  # it learns from the run, as what ships does
            assert any("guided:" in m.origin for m in store.measurements())

    target = Target.parse('{"kind": "llvm", "mcpu": "znver3", "num-cores": 2}')
    job = Onboarding(
        target=target,
        platform=target.platform(OTHER),
        minutes=1.0,
        out=tmp_path / "onboarded",
        choice=start_at(model),
    )
    _part(job.out / "store", OTHER, tasks=10, split="train", per_task=10)
    assert learn(job, quick=True).model.kind == "tlp"
