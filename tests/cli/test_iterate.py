"""`tensorese iterate` from the command line: one small run, and everything that is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cpu_records_support import cpu_measurements
from iterate_support import PLATFORM, TARGET, micro_model, small_tasks, task_list
from tensorese.cli import run
from tensorese.models.base import load_model
from tensorese.records.nouns import Status
from tensorese.records.store import Store

pytestmark = pytest.mark.tvm

QUICK = ("--set", "steps=2", "--set", "tasks=2", "--set", "rows=2", "--device", "cpu")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, a task list, and a store whose programs all failed."""
    folder = tmp_path_factory.mktemp("iterate")
    micro_model(folder / "micro")
    task_list(folder / "tasks.parquet", small_tasks(2))
    task_list(folder / "test.parquet", small_tasks(1, split="test"))
    with Store.open(folder / "failed", create=True) as store:
        records = cpu_measurements([PLATFORM], tasks=1, per_task=3)
        store.ingest(replace(m, status=Status.BUILD_ERROR, run_secs=()) for m in records)
    return folder


def arguments(place: Path, out: Path, *more: str) -> list[str]:
    given = ["iterate", "--target", TARGET, "--platform", PLATFORM, "--out", str(out)]
    if "--tasks" not in more:
        given += ["--tasks", str(place / "tasks.parquet")]
    if "--model" not in more:
        given += ["--model", str(place / "micro")]
    return [*given, *QUICK, *more]


def stored(out: Path) -> list[str]:
    with Store.open(out / "store") as store:
        ids: list[str] = store.table(["program_id"])["program_id"].to_pylist()
        return ids


def test_one_round_is_written_measured_and_learnt(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    more = ("--rounds", "1", "--per-task", "3", "--task-share", "1", "--json")
    assert run(arguments(place, out, *more)) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = [event["event"] for event in events if event["event"] not in ("learning", "measuring")]
    assert kinds == ["start", "round", "end"]
    end = events[-1]
    assert end["trials"] == len(stored(out)) == 6 and end["sums"][0] > 0
    assert end["final_model"] == str(out / "model") and (out / "report.html").exists()
    # The same again has nothing to do; another setting is another run.
    assert run(arguments(place, out, *more)) == 0
    assert len(stored(out)) == 6
    line = refused(capsys, arguments(place, out, *more, "--per-task", "4"))
    assert "per_task 3, but now it is 4" in line
    hashes = [load_model(p).hash for p in (place / "micro", micro_model(tmp_path / "b", seed=1))]
    line = refused(capsys, arguments(place, out, *more, "--model", str(tmp_path / "b")))
    assert f"model {hashes[0]}, but now it is {hashes[1]}" in line


def refused(capsys: pytest.CaptureFixture[str], given: list[str]) -> str:
    capsys.readouterr()
    assert run(given) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("tensorese: ") and err.count("\n") == 1, err
    return err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--rounds", "0"), "--rounds must be at least 1, but got 0"),
        (("--minutes", "0"), "--minutes must be positive"),
        (("--per-task", "-3"), "--per-task must be at least 1"),
        (("--task-share", "2"), "--task-share must be in (0, 1]"),
        (("--tasks", "zoo:resnet19"), "did you mean 'resnet18'"),
        (("--tasks", "nowhere.parquet"), "does not exist"),
        (("--tasks", "TEST"), "has no train tasks for llvm targets"),
        (("--target", "cuda:h200"), "no cuda device"),
        (("--target", "hots"), "did you mean 'host'"),
        (("--device", "cuda"), "--device cuda needs a CUDA device"),
        (("--model", "nowhere"), "does not exist"),
        (("--model", "SHIPPED"), "of kind ensemble"),
        (("--set", "stps=3"), "did you mean 'steps'"),
        (("--set", "layers=2"), "there is one already"),
        (("--ray", "auto", "--rpc-key", "x"), "exclude each other"),
        (("--data", "nowhere"), "nowhere does not exist"),
    ],
)
def test_wrong_input_is_one_line(
    more: tuple[str, ...],
    said: str,
    place: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shipped = Path(__file__).parents[2] / "src/tensorese/models/shipped/emeraldrapids-1c"
    names = {"SHIPPED": str(shipped), "TEST": str(place / "test.parquet")}
    given = arguments(place, tmp_path / "run", *(names.get(word, word) for word in more))
    assert said in refused(capsys, given)
    assert not (tmp_path / "run").exists(), "nothing is begun"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ((), "there is no --data to train one from"),
        (("failed",), "has none; name other --data"),
    ],
)
def test_without_a_model_there_must_be_records(
    data: tuple[str, ...],
    said: str,
    place: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tensorese.iterate.session.choose", lambda *args, **kwargs: None)
    stores = [word for name in data for word in ("--data", str(place / name))]
    given = arguments(place, tmp_path / "run", "--model", "auto", *stores)
    assert said in refused(capsys, given)


def test_a_model_of_other_words_or_another_size_is_refused(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = micro_model(tmp_path / "model")
    whole = json.loads((folder / "config.json").read_text())
    network = {**whole["section"]["network"], "width": 32}
    changes: list[tuple[dict[str, Any], str]] = [
        ({"features": {**whole["features"], "version": "0ld"}}, "train it again"),
        ({"section": {**whole["section"], "network": network}}, "must describe one model"),
    ]
    for change, said in changes:
        (folder / "config.json").write_text(json.dumps({**whole, **change}))
        given = arguments(place, tmp_path / "run", "--model", str(folder))
        assert said in refused(capsys, given)


@pytest.mark.slow
def test_ctrl_c_ends_it_well_and_the_same_command_goes_on(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    more = ("--rounds", "2", "--per-task", "24", "--task-share", "1", "--least-gain", "0")
    command = [sys.executable, "-m", "tensorese", *arguments(place, out, *more)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while time.monotonic() < until and not list(out.glob("store/journal-*")):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted" in said
    before = stored(out)
    assert before and len(before) < 96
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "2 rounds, 96 trials" in done.stdout
    after = stored(out)
    assert len(after) == len(set(after)) == 96 and set(before) <= set(after)
