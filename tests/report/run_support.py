"""Run folders made by hand: what a report is drawn from."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tensorese.records.nouns import (
    Measurement,
    Platform,
    Program,
    Sketch,
    Status,
    TensorSpec,
    Workload,
)
from tensorese.records.store import Store

SKETCH = Sketch(dialect="metaschedule", body="[[],[]]", slots=((0, -1),))
PLATFORM = Platform(name="here")


def workload(n: int) -> Workload:
    return Workload(operator="matmul", args=(TensorSpec(shape=(n, n), dtype="float32"),))


def program(n: int, row: int) -> Program:
    return Program(workload=workload(n), sketch=SKETCH, decisions=(row,))


def head(*sizes: int, **more: Any) -> dict[str, Any]:
    tasks = [
        {
            "workload": workload(n).id,
            "name": f"matmul{n}",
            "operator": "dense",
            "weight": 2,
            "flops": 2e6,
            "shapes": [f"{n}x{n}"],
        }
        for n in sizes
    ]
    return {
        "version": 1,
        "model": "zoo:x",
        "network": "x",
        "target": "{}",
        "platform": "here",
        "tasks": tasks,
        "state": "finished",
        "seconds": 100.0,
        **more,
    }


def batch(n: int, secs: float, rows: list[int], best: float | None) -> dict[str, Any]:
    proposed = [
        {"program": program(n, r).id, "measurement": f"{n}-{r}", "score": -r, "origin": "test"}
        for r in rows
    ]
    return {
        "batch": 0,
        "secs": secs,
        "task": workload(n).id,
        "trials": 0,
        "proposed": proposed,
        "phases": {"propose": 1.0, "measure": 2.0},
        "best": best,
    }


def measured(n: int, row: int, secs: float | None, error: str = "") -> Measurement:
    status = Status.BUILD_ERROR if secs is None else Status.OK
    return Measurement(
        program=program(n, row),
        platform=PLATFORM,
        status=status,
        run_secs=() if secs is None else (secs,),
        error=error,
    )


def write(folder: Path, head: dict[str, Any], batches: list[Any], rows: list[Measurement]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps(head))
    (folder / "batches.jsonl").write_text("".join(json.dumps(b) + "\n" for b in batches))
    with Store.open(folder / "store", create=True) as store:
        store.append_many(rows)
    return folder


def good_run(folder: Path) -> Path:
    rows = [measured(8, r, 1e-3 / (1 + r)) for r in range(4)] + [measured(8, 9, None, "boom")]
    batches = [batch(8, 10.0, [0, 1, 2], 1e-3 / 3), batch(8, 20.0, [3, 9], 1e-3 / 4)]
    return write(folder, head(8, peak_gflops=100.0), batches, rows)


def append(run: Path, line: dict[str, Any], rows: list[Measurement]) -> None:
    """As a run that goes on: its results, then the batch that was learnt."""
    with Store.open(run / "store") as store:
        store.append_many(rows)
    with (run / "batches.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


@contextmanager
def dashboard(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`tensorese dashboard ARGUMENTS` on a free port, and its address."""
    command = [sys.executable, "-m", "tensorese", "dashboard", *arguments, "--port", "0"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
        assert address, process.communicate(timeout=20)
        yield process, address.group()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate(timeout=20)
