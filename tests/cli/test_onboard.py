"""`tensorese onboard`: refusals, and learning from a store that is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from models_support import physics_model, trees_model

from cpu_records_support import cpu_measurements
from tensorese.cli import run
from tensorese.collect.tasklist import ListedTask
from tensorese.models.base import Card, load_model, save_model
from tensorese.models.catalog import choose
from tensorese.onboard import adapt
from tensorese.onboard.adapt import OnboardError
from tensorese.onboard.session import STORE, Onboarding, learn, pick_tasks, start_at
from tensorese.records.nouns import TensorSpec, Workload
from tensorese.records.store import Store
from tensorese.targets import Target

pytestmark = pytest.mark.null

TARGET = Target.from_json('{"kind":"llvm","mcpu":"lake","num-cores":2}')


def _job(tmp_path: Path) -> Onboarding:
    start = save_model(
        tmp_path / "start" / "lake-1c",
        physics_model(("lake-1c",)),
        Card(training_workloads=("seen before",)),
    )
    return Onboarding(
        target=TARGET,
        platform=TARGET.platform("lake-2c"),
        minutes=1.0,
        out=tmp_path / "models" / "lake-2c",
        choice=start_at(start),
    )


def test_what_was_measured_becomes_a_model_that_auto_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapt, "TREES", 10)
    job = _job(tmp_path)
    with Store.open(job.out / STORE, create=True) as store:
        store.ingest(cpu_measurements(("lake-2c",), tasks=10, per_task=8))
    adapted = learn(job, quick=True)
    assert adapted.gain.tasks == 2
    assert load_model(job.out).platforms == ("lake-2c",)
    choice = choose(job.platform, [tmp_path / "models"])
    assert choice is not None and choice.folder == job.out and choice.head == "lake-2c"
    card = json.loads((job.out / "config.json").read_text())["card"]
    assert card["metrics"]["labels"] == 80
    # Its own tasks, and what its trunk had learnt from.
    assert len(card["training_workloads"]) == 11 and "seen before" in card["training_workloads"]
    assert card["targets"] == {"lake-2c": TARGET.to_json()}


def test_nothing_measured_is_said_so(tmp_path: Path) -> None:
    job = _job(tmp_path)
    with Store.open(job.out / STORE, create=True):
        pass
    with pytest.raises(OnboardError, match=r"has none of lake-2c; measure for more --minutes"):
        learn(job)


def _task(operator: str, flops: float, split: str = "") -> ListedTask:
    spec = TensorSpec(shape=(int(flops),), dtype="float32")
    workload = Workload(operator=operator, args=(spec,))
    return ListedTask(workload=workload, kind="llvm", operator=operator, flops=flops, split=split)


def test_test_tasks_are_never_probed() -> None:
    tasks = [_task("conv2d", 9), _task("conv2d", 3), _task("dense", 5), _task("dense", 1, "test")]
    assert {task.operator for task in pick_tasks(tasks, 2)} == {"conv2d", "dense"}
    assert sorted(task.flops for task in pick_tasks(tasks)) == [3, 5, 9]
    with pytest.raises(OnboardError, match="all 1 tasks are marked test"):
        pick_tasks(tasks[3:])


def test_trees_are_refused_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    start = save_model(tmp_path / "trees", trees_model(("lake-1c",)), Card())
    assert run(["onboard", "--start", str(start), "--out", str(tmp_path / "out")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert "is of kind trees; start from one of ensemble, physics, tlp, mtl-tlp" in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--minutes", "0"], "--minutes must be positive, but got 0"),
        (["--target", "hust"], "did you mean 'host'"),
        (["--start", "nowhere"], "does not exist"),
        (["--tasks", "nowhere"], "does not exist"),
    ],
)
def test_refusals(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["onboard", *arguments, "--out", str(tmp_path / "out")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and says in err
    assert not (tmp_path / "out").exists()
