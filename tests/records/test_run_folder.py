"""A run folder: what it refuses, and what it still knows after a kill."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tensorese.errors import StoreError, TensoreseError
from tensorese.records.nouns import Sketch, Workload
from tensorese.records.run_entries import (
    BestProgram,
    EitherWay,
    Pending,
    PendingRow,
    RunHead,
    Way,
)
from tensorese.records.run_folder import RunFolder, RunFolderError, recorded_ways

pytestmark = pytest.mark.null


def head(**changed: Any) -> RunHead:
    given: dict[str, Any] = {
        "model": "zoo:one",
        "network": "one",
        "target": '{"kind":"llvm"}',
        "platform": "here",
        "tasks": [{"workload": "aaaa", "name": "conv"}],
        "toolchain": {"tvm": "0.27"},
    }
    return RunHead(**{**given, **changed})


def batch(number: int) -> Pending:
    row = PendingRow(sketch="sk", row=(1, 2), origin="guess", score=float("nan"))
    return Pending(number=number, task="aaaa", rows=[row])


def line(n: int) -> dict[str, Any]:
    return {"secs": 1.5 * n, "task": "aaaa", "proposed": [{"program": "p"}]}


def test_a_finished_batch_and_a_pending_one_survive(tmp_path: Path) -> None:
    folder = RunFolder.open(tmp_path / "run", head())
    for number in range(2):
        folder.begin(batch(number))
    folder.finish(0, line(2))
    again = RunFolder.open(tmp_path / "run", head())
    assert [b["batch"] for b in again.batches] == [0]
    assert [p.number for p in again.pending] == [1]
    assert again.pending[0].rows[0].row == (1, 2)
    assert again.earlier_secs == 3.0
    assert again.trials == 1


def test_half_a_line_is_cut_off_and_its_batch_is_pending(tmp_path: Path) -> None:
    folder = RunFolder.open(tmp_path / "run", head())
    folder.begin(batch(0))
    text = json.dumps({"batch": 0, **line(1)})
    (tmp_path / "run" / "batches.jsonl").write_text(text[: len(text) // 2])
    again = RunFolder.open(tmp_path / "run", head())
    assert again.batches == []
    assert [p.number for p in again.pending] == [0]
    again.finish(0, line(1))
    assert len(RunFolder.open(tmp_path / "run", head()).batches) == 1


@pytest.mark.parametrize(
    ("changed", "both"),
    [
        (
            {"model": "zoo:two", "tasks": [{"workload": "bbbb", "name": "conv"}]},
            ("zoo:one", "zoo:two"),
        ),
        (
            {"config": {"winograd": True}, "tasks": [{"workload": "bbbb", "name": "matmul"}]},
            ("winograd False", "True"),
        ),
        ({"toolchain": {"tvm": "0.27", "lowering": "1"}}, ("lowering absent", "1")),
        ({"target": '{"kind":"cuda"}'}, ("llvm", "cuda")),
        ({"platform": "there"}, ("here", "there")),
        ({"config": {"proposer": "random"}}, ("proposer evolution", "random")),
        ({"toolchain": {"tvm": "0.28"}}, ("tvm 0.27", "0.28")),
    ],
)
def test_another_run_is_refused_with_both_values(
    tmp_path: Path, changed: dict[str, Any], both: tuple[str, str]
) -> None:
    RunFolder.open(tmp_path / "run", head())
    before = (tmp_path / "run" / "run.json").read_text()
    with pytest.raises(TensoreseError) as caught:
        RunFolder.open(tmp_path / "run", head(**changed))
    assert all(value in str(caught.value) for value in both)
    assert (tmp_path / "run" / "run.json").read_text() == before


def test_how_convolutions_are_computed_is_kept(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert recorded_ways(run) is None
    tasks = [{"workload": id_, "name": id_, "weight": n} for id_, n in (("aa", 2), ("bb", 1))]
    folder = RunFolder.open(run, head(tasks=tasks, config={"winograd": True}))
    assert recorded_ways(run) == (), "a run that decides nothing goes on so"
    ways = (Way(m=4, calls={"aa": 2}), Way(m=0, calls={"bb": 1}, secs=1.0))
    one = EitherWay(key=(1, 8, 8, 16, 16), ways=ways, decided=True)
    folder.choose([one], {"aa": 0}, 3.0)
    written = json.loads((run / "run.json").read_text())
    assert [task["weight"] for task in written["tasks"]] == [0, 1]
    assert written["seconds"] == 3.0 and recorded_ways(run) == (one,)
    config = {"winograd": False}
    with pytest.raises(TensoreseError, match="winograd True, but now it is False"):
        RunFolder.open(run, head(tasks=tasks[:1], config=config))
    (run / "run.json").write_text('{"config": {"winograd": [{"key": 3}]}}')
    assert recorded_ways(run) == ()


def test_a_renamed_model_file_with_the_same_tasks_goes_on(tmp_path: Path) -> None:
    RunFolder.open(tmp_path / "run", head())
    RunFolder.open(tmp_path / "run", head(model="elsewhere/one.onnx"))


def test_foreign_folders_and_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_text("mine")
    with pytest.raises(TensoreseError, match="holds other files"):
        RunFolder.open(tmp_path, head())
    with pytest.raises(TensoreseError, match="is a file"):
        RunFolder.open(tmp_path / "photo.jpg", head())
    assert [p.name for p in tmp_path.iterdir()] == ["photo.jpg"]


def test_a_full_disk_says_so_and_keeps_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder.open(tmp_path / "run", head())
    folder.begin(batch(0))

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(StoreError, match="free disk space"):
        folder.begin(batch(1))
    monkeypatch.undo()
    assert [p.number for p in RunFolder.open(tmp_path / "run", head()).pending] == [0]


def best_program() -> BestProgram:
    return BestProgram(
        sketch=Sketch(dialect="metaschedule", body="[]", slots=((0, 2), (3, -1))),
        decisions=(4, 8, 1),
        tail="[]",
        latency=1e-3,
        name="conv",
        weight=3,
        flops=1e6,
        remeasured=(1e-3, 2e-3),
        verified=True,
    )


def test_reading_changes_nothing(tmp_path: Path) -> None:
    folder = RunFolder.open(tmp_path / "run", head())
    folder.begin(batch(0))
    folder.finish(0, line(1))
    folder.close()
    with (tmp_path / "run" / "batches.jsonl").open("a") as file:
        file.write('{"half')
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    again = RunFolder.read(tmp_path / "run")
    assert [b["batch"] for b in again.batches] == [0]
    assert again.head["network"] == "one" and again.model == "zoo:one"
    assert again.best() == {} and not again.has_best
    assert again.optional("certificate.json") == {} and again.outcomes(["id"]) == []
    assert {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()} == before


def test_the_best_programs_come_back_as_they_were_written(tmp_path: Path) -> None:
    folder = RunFolder.open(tmp_path / "run", head())
    best, workload = best_program(), Workload(operator="conv2d", args=())
    best = replace(best, others=(replace(best, decisions=(2, 4, 0), latency=2e-3),))
    row = best.to_dict(workload)
    assert row["program"] == best.program(workload).id
    folder.write_best({workload.id: row})
    assert RunFolder.read(tmp_path / "run").best() == {workload.id: best}
    del row["decisions"]
    folder.write_best({workload.id: row})
    with pytest.raises(RunFolderError, match="lacks or garbles 'decisions'"):
        folder.best()


def test_a_model_kept_beside_its_run_is_the_one_that_is_compiled(tmp_path: Path) -> None:
    folder = RunFolder.open(tmp_path / "run", head())
    (tmp_path / "run" / "model.pt2").write_bytes(b"")
    assert folder.model == str(tmp_path / "run" / "model.pt2")


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TensoreseError):
        RunFolder.open(tmp_path / "file" / "run", head())
