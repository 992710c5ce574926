"""Tensorese against stock MetaSchedule on eight CPU subgraphs, and on ResNet-18.

    python benchmarks/tune_vs_metaschedule.py run       # every row that is missing, then retime
    python benchmarks/tune_vs_metaschedule.py retime    # winners of both, interleaved
    python benchmarks/tune_vs_metaschedule.py report    # table and drawing
    python benchmarks/tune_vs_metaschedule.py network   # ResNet-18, equal minutes

Every row is a process of its own, timed from its start to its result. Rows are kept by system,
task, seed, trials, machine and TVM: what is there is not run again. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import RESULTS, ROOT, provenance
from tune_subgraphs import SUBGRAPHS

ROWS = "tune_vs_metaschedule.jsonl"
WORK = ROOT / "runs" / "tune_vs_metaschedule"
LONG_TASKS = ("conv2d_3x3", "matmul", "depthwise")
LONG_TRIALS = 256
AUTO_TRIALS = 32  # of ours with the shipped model
_KEY = ("system", "task", "seed", "trials", "machine", "tvm")


def machine() -> dict[str, str]:
    """What a row is only comparable on."""
    about = provenance()
    cpu = about["machine"]
    name = f"{cpu['cpu']}, {cpu['cores']} cores"
    return {"machine": name, "tvm": str(about["versions"].get("apache-tvm", ""))}


def read_rows(out: Path) -> list[dict[str, Any]]:
    path = out / ROWS
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _KEY)


def add_row(out: Path, row: dict[str, Any]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with (out / ROWS).open("a") as file:
        file.write(json.dumps(row) + "\n")


def wanted(tasks: list[str], trials: int, seeds: int, long: int) -> Iterator[dict[str, Any]]:
    here = machine()
    for task in tasks:
        yield {"system": "stock", "task": task, "seed": 0, "trials": trials, **here}
        for seed in range(seeds):
            yield {"system": "ours", "task": task, "seed": seed, "trials": trials, **here}
            yield {"system": "auto", "task": task, "seed": seed, "trials": AUTO_TRIALS, **here}
    for task in LONG_TASKS if long else ():
        if task in tasks:
            yield {"system": "stock", "task": task, "seed": 0, "trials": long, **here}


def module_file(task: str) -> Path:
    """The IRModule both systems are given, as TVM's JSON."""
    from tensorese.targets import parse_target
    from tensorese.tvm_env import import_tvm

    path = WORK / "modules" / f"{task}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(import_tvm().ir.save_json(SUBGRAPHS[task].module()))
    (WORK / "target.json").write_text(parse_target("host"))
    return path


def run_row(row: dict[str, Any]) -> dict[str, Any]:
    """One timed process. Its folder is new: nothing an earlier one left can help it."""
    stamp = hashlib.sha256(f"{key_of(row)}{time.time()}".encode()).hexdigest()[:8]
    folder = WORK / f"{row['system']}-{row['task']}-{row['trials']}-{row['seed']}-{stamp}"
    module = module_file(row["task"])
    folder.mkdir(parents=True)
    (folder / "target.json").write_text((WORK / "target.json").read_text())
    child = [sys.executable, str(Path(__file__).with_name("tune_child.py")), row["system"]]
    command = [*child, str(module), str(folder), str(row["trials"]), str(row["seed"])]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    started = time.time()
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment)
        assert process.stdout is not None
        last = b""
        for line in process.stdout:
            last, at = line, time.time()
        code = process.wait()
    if code:
        raise SystemExit(f"{' '.join(command)} failed ({code}); see {folder / 'log.txt'}")
    return {**row, "secs": round(at - started, 3), **json.loads(last), "load": os.getloadavg()[0]}


def run(arguments: argparse.Namespace) -> None:
    tasks = arguments.tasks or list(SUBGRAPHS)
    done = {key_of(row) for row in read_rows(arguments.out)}
    long = arguments.long
    rows = [
        r
        for r in wanted(tasks, arguments.trials, arguments.seeds, long)
        if arguments.only in r["system"]
    ]
    for row in rows:
        if key_of(row) in done:
            continue
        made = run_row(row)
        add_row(
            arguments.out, {**made, "date": provenance()["date"], "commit": provenance()["commit"]}
        )
        print(
            f"{row['system']:6} {row['task']:13} {row['trials']} trials, seed {row['seed']}: "
            f"{made['secs']:.1f} s, {made['latency'] * 1e3:.4f} ms",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stage", choices=("run", "retime", "report", "network"))
    parser.add_argument("--tasks", nargs="*", choices=list(SUBGRAPHS))
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--long", type=int, default=LONG_TRIALS, help="Trials of stock's long runs; 0: none."
    )
    parser.add_argument("--only", default="", help="Only this system.")
    parser.add_argument("--rounds", type=int, default=9, help="Turns of the winners.")
    parser.add_argument("--minutes", type=float, default=10.0, help="Of each system on ResNet-18.")
    parser.add_argument("--out", type=Path, default=RESULTS, help="Where rows and tables are.")
    arguments = parser.parse_args()
    out, trials = arguments.out, arguments.trials
    if arguments.stage == "run":
        run(arguments)
    if arguments.stage in ("run", "retime"):
        from tune_retime import retime

        retime(out, read_rows(out), machine(), trials, arguments.rounds)
    if arguments.stage == "network":
        from tune_network import compare

        compare(out, arguments.minutes)
    if arguments.stage in ("run", "retime", "report"):
        from tune_report import report

        report(out, read_rows(out), machine(), trials)


if __name__ == "__main__":
    main()
