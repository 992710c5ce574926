"""Damaged files of a run folder: one line, or repaired; never a traceback."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tensorese.deploy.errors import DeployError
from tensorese.deploy.folder import read_run
from tensorese.deploy.library import load
from tensorese.errors import TensoreseError
from tensorese.records.nouns import Sketch, Workload
from tensorese.records.run_entries import BestProgram, Pending, PendingRow, RunHead
from tensorese.records.run_folder import RunFolder

pytestmark = pytest.mark.null

FILES = ("run.json", "batches.jsonl", "pending.json", "best.json", "certificate.json")
JUNK = (b"", b"\x00\xff\xfe", b"[]", b"3", b"null", b"{}", b'"text"', b"{" * 5000, b"[" * 100_000)


def head() -> RunHead:
    tasks = [{"workload": "aaaa", "name": "conv", "weight": 1}]
    tools = {"tvm": "0.27"}
    target = '{"kind":"llvm"}'
    return RunHead(
        model="m", network="m", target=target, platform="p", tasks=tasks, toolchain=tools
    )


def made(path: Path) -> Path:
    folder = RunFolder.open(path, head())
    row = PendingRow(sketch="sk", row=(1, 2), origin="guess", score=0.5)
    for number in range(3):
        folder.begin(Pending(number=number, task="aaaa", rows=[row]))
    proposed = [{"program": "p", "measurement": "m", "score": None, "origin": "guess"}]
    for number in range(2):
        folder.finish(number, {"secs": 1.5, "task": "aaaa", "proposed": proposed})
    sketch = Sketch(dialect="metaschedule", body="[]", slots=((0, 2),))
    best = BestProgram(
        sketch=sketch, decisions=(4, 8), tail="", latency=1e-3, name="conv", weight=1, flops=1.0
    )
    folder.write_best({"aaaa": best.to_dict(Workload(operator="conv2d", args=()))})
    signature = {"target": "{}", "inputs": [], "outputs": []}
    certificate = {"signature": signature, "library": {"sha256": "0"}}
    (path / "certificate.json").write_text(json.dumps(certificate))
    (path / "library.so").write_bytes(b"")
    folder.close()
    return path


def touch_everything(path: Path) -> None:
    """Raises nothing but one-line errors."""
    for read in (read_run, load):
        try:
            read(path)
        except TensoreseError as error:
            assert "\n" not in str(error)
    try:
        folder = RunFolder.open(path, head())
    except TensoreseError as error:
        assert "\n" not in str(error)
        return
    assert folder.trials >= 0 and folder.earlier_secs >= 0 and folder.best_is_whole in (True, False)
    folder.close()


def mutated(value: Any, rng: random.Random) -> Any:
    """With one place of a JSON value replaced by something of another type."""
    if isinstance(value, (dict, list)) and value and rng.random() < 0.85:
        key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
        copy = dict(value) if isinstance(value, dict) else list(value)
        if isinstance(copy, dict) and rng.random() < 0.2:
            del copy[key]
        else:
            copy[key] = mutated(value[key], rng)
        return copy
    return rng.choice([None, [], {}, "x", -1, 1e400, float("nan"), 10**30, [[]], {"a": None}, True])


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("junk", [None, *JUNK], ids=lambda junk: repr(junk)[:12])
def test_absent_empty_and_junk(tmp_path: Path, name: str, junk: bytes | None) -> None:
    run = made(tmp_path / "run")
    if junk is None:
        (run / name).unlink()
    else:
        (run / name).write_bytes(junk)
    touch_everything(run)


@pytest.mark.parametrize("name", FILES)
def test_wrong_types_and_cut_files(tmp_path: Path, name: str) -> None:
    run = made(tmp_path / "run")
    whole = {file: (run / file).read_bytes() for file in FILES}
    rng = random.Random(name)
    for _ in range(60):
        for file, data in whole.items():
            (run / file).write_bytes(data)
        text = whole[name]
        if rng.random() < 0.3:
            (run / name).write_bytes(text[: rng.randrange(len(text))])
        else:
            lines = text.splitlines() if name.endswith("l") else [text]
            at = rng.randrange(len(lines))
            lines[at] = json.dumps(mutated(json.loads(lines[at]), rng)).encode()
            (run / name).write_bytes(b"\n".join(lines) + b"\n")
        touch_everything(run)


def test_a_damaged_line_is_set_aside_and_said(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    first, second = (run / "batches.jsonl").read_bytes().splitlines(keepends=True)
    (run / "batches.jsonl").write_bytes(first[:9] + b"\n" + second)
    folder = RunFolder.open(run, head())
    assert [b["batch"] for b in folder.batches] == [1]
    assert any("1 damaged lines" in text for text in folder.repairs)
    folder.close()
    assert (run / "batches.jsonl").read_bytes() == second
    assert (run / "batches.jsonl.damaged").read_bytes().endswith(second)


def test_a_run_without_a_certificate_says_compile(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    (run / "certificate.json").write_text('{"signature": []}')
    with pytest.raises(DeployError, match="compile again"):
        load(run)
