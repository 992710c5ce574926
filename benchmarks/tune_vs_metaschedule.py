"""Tensorese against stock MetaSchedule on subgraphs, tasks of the test networks, and ResNet-18.

    python benchmarks/tune_vs_metaschedule.py run       # every row that is missing, then retime
    python benchmarks/tune_vs_metaschedule.py retime    # winners of both, interleaved
    python benchmarks/tune_vs_metaschedule.py report    # table and drawing
    python benchmarks/tune_vs_metaschedule.py network   # ResNet-18, equal minutes

`--set subgraphs` (the default): ours from nothing, and with the shipped model, on eight subgraphs.
`--set test`, `--set test-cuda`: ours with the shipped model, few trials, against long runs of
stock, on the tasks of `test_tasks.json`; the second on a machine with a GPU.

Every row is a process of its own, timed from its start to its result. Rows are kept in
`benchmarks/results/tune_vs_metaschedule/MACHINE.jsonl` by system, task, seed, trials, machine and
TVM: what is there is not run again; `--again` runs ours anew and keeps stock's rows, which take
hours. Run it on a quiet machine.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import RESULTS, ROOT, add_rows, gpu_name, machine_name, provenance, read_rows
from tune_subgraphs import SUBGRAPHS, Subgraph, TestTask, test_tasks

SETS = ("subgraphs", "test", "test-cuda")
WORK = ROOT / "runs" / "tune_vs_metaschedule"
LONG_TASKS = ("conv2d_3x3", "matmul", "depthwise")
AUTO_TRIALS = 32  # of ours with the shipped model
Row = dict[str, Any]
_KEY = ("system", "task", "seed", "trials", "machine", "tvm")


def machine(target: str = "host") -> dict[str, str]:
    """What a row is only comparable on."""
    about = provenance()
    cpu = about["machine"]
    name = f"{cpu['cpu']}, {cpu['cores']} cores"
    if target == "cuda":
        name = f"{gpu_name()}, {name}"
    return {"machine": name, "tvm": str(about["versions"].get("apache-tvm") or _tvm_version())}


def _tvm_version() -> str:
    """Of a TVM that was unpacked rather than installed: there is nothing to ask but itself."""
    from tensorese.tvm_env import import_tvm

    return str(import_tvm().__version__)


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _KEY)


def runs_of(path: Path) -> list[Row]:
    """Rows of single runs; the others are of winners timed together."""
    return [row for row in read_rows(path) if "system" in row]


def replace_rows(path: Path, rows: list[Row]) -> None:
    path.unlink(missing_ok=True)
    add_rows(path, rows)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A set of tasks, where they run, and which rows it wants."""

    name: str
    target: str
    tasks: dict[str, Subgraph] | dict[str, TestTask]
    long: int
    """Trials of stock's long runs."""

    def wanted(self, tasks: list[str], trials: int, seeds: int, long: int) -> Iterator[Row]:
        here = machine(self.target)
        for task in tasks:
            for seed in range(seeds):
                yield {"system": "auto", "task": task, "seed": seed, "trials": AUTO_TRIALS, **here}
            if self.name == "subgraphs":
                yield {"system": "stock", "task": task, "seed": 0, "trials": trials, **here}
                for seed in range(seeds):
                    yield {"system": "ours", "task": task, "seed": seed, "trials": trials, **here}
        for task in LONG_TASKS if self.name == "subgraphs" else tasks:
            if task in tasks and long:
                yield {"system": "stock", "task": task, "seed": 0, "trials": long, **here}


def comparison(name: str) -> Comparison:
    if name == "test":
        return Comparison(name=name, target="host", tasks=test_tasks("llvm"), long=256)
    if name == "test-more":
        return Comparison(name=name, target="host", tasks=test_tasks("llvm-more"), long=64)
    if name == "test-cuda":
        return Comparison(name=name, target="cuda", tasks=test_tasks("cuda"), long=128)
    return Comparison(name=name, target="host", tasks=SUBGRAPHS, long=256)


def module_file(task: Subgraph | TestTask) -> Path:
    """The IRModule both systems are given, as TVM's JSON."""
    from tensorese.tvm_env import import_tvm

    path = WORK / "modules" / f"{task.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(import_tvm().ir.save_json(task.module()))
    return path


def run_row(chosen: Comparison, row: Row) -> Row:
    """One timed process. Its folder is new: nothing an earlier one left can help it."""
    from tensorese.targets import Target

    stamp = hashlib.sha256(f"{key_of(row)}{time.time()}".encode()).hexdigest()[:8]
    folder = WORK / f"{row['system']}-{row['task']}-{row['trials']}-{row['seed']}-{stamp}"
    module = module_file(chosen.tasks[row["task"]])
    folder.mkdir(parents=True)
    (folder / "target.json").write_text(Target.parse(chosen.target).to_json())
    child = [sys.executable, str(Path(__file__).with_name("tune_child.py")), row["system"]]
    command = [*child, str(module), str(folder), str(row["trials"]), str(row["seed"])]
    command.append(chosen.target)
    paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
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


def run(chosen: Comparison, arguments: argparse.Namespace) -> None:
    tasks = arguments.tasks or list(chosen.tasks)
    path = arguments.rows
    if arguments.again:
        kept = [r for r in read_rows(path) if r.get("task") not in tasks or r["system"] == "stock"]
        replace_rows(path, kept)
    done = {key_of(row) for row in runs_of(path)}
    long = chosen.long if arguments.long is None else arguments.long
    rows = [
        row
        for row in chosen.wanted(tasks, arguments.trials, arguments.seeds, long)
        if arguments.only in row["system"] and key_of(row) not in done
    ]
    for row in rows:
        made = run_row(chosen, row)
        about = provenance()
        add_rows(path, [{**made, "date": about["date"], "commit": about["commit"]}])
        print(
            f"{row['system']:6} {row['task']:13} {row['trials']} trials, seed {row['seed']}: "
            f"{made['secs']:.1f} s, {made['latency'] * 1e3:.4f} ms",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stage", choices=("run", "rows", "retime", "report", "network"))
    parser.add_argument("--set", default="subgraphs", choices=SETS)
    parser.add_argument("--tasks", nargs="*", help="Some tasks of the set.")
    parser.add_argument("--trials", type=int, default=64, help="Of ours from nothing.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--long", type=int, help="Trials of stock's long runs; 0: none.")
    parser.add_argument("--only", default="", help="Only this system.")
    parser.add_argument("--rounds", type=int, default=9, help="Turns of the winners.")
    parser.add_argument("--minutes", type=float, default=10.0, help="Of each system on ResNet-18.")
    parser.add_argument("--again", action="store_true", help="Run ours anew, keep stock's rows.")
    parser.add_argument("--out", type=Path, default=RESULTS / "tune_vs_metaschedule")
    parser.add_argument("--machine", help="Whose rows, to report them elsewhere.")
    arguments = parser.parse_args()
    chosen = comparison(arguments.set)
    name = arguments.machine or machine_name(gpu=chosen.target == "cuda")
    arguments.rows = arguments.out / f"{name}.jsonl"
    unknown = sorted(set(arguments.tasks or ()) - set(chosen.tasks))
    if unknown:
        parser.error(f"--tasks must be of {', '.join(chosen.tasks)}, but {unknown[0]} is not")
    if arguments.stage in ("run", "rows"):
        run(chosen, arguments)
    if arguments.stage in ("run", "retime"):
        from tune_retime import retime

        retime(chosen, arguments.rows, arguments.rounds, arguments.trials)
    if arguments.stage == "network":
        from tune_network import compare

        compare(arguments.minutes)
    if arguments.stage in ("run", "retime", "report"):
        from tune_report import report

        report([comparison(name) for name in SETS], arguments.rows, arguments.trials)


if __name__ == "__main__":
    main()
