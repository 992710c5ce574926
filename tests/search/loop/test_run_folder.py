"""A run folder: what it refuses, and what it still knows after a kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tensorese.errors import StoreError, TensoreseError
from tensorese.search.contracts import Proposal
from tensorese.search.loop.run_folder import Pending, RunFolder, RunHead

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
    proposal = Proposal(sketch=0, row=(1, 2), origin="guess")
    return Pending(number=number, task="aaaa", proposals=[("sk", proposal)])


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
    assert again.pending[0].proposals[0][1].row == (1, 2)
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


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TensoreseError):
        RunFolder.open(tmp_path / "file" / "run", head())
