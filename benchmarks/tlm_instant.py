"""Nothing measured against ten minutes of tuning: seconds to a verified library, and its speed.

    python benchmarks/tlm_instant.py [--network resnet50 ...] [--minutes 10] [--turns 5]

Every network is built by `tensorese tune --trials 0` and by `tensorese tune --minutes`; both
libraries are then timed in turns, and the programs of every task side by side by one farm. Run
folders stay under runs/tlm_instant, and a tuned one is not tuned again; the row of a network that
is in the result file is kept. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import ROOT, environment, result_file, write_result

NETWORKS = ("resnet50", "mobilenet_v2", "resnext50_32x4d", "bert_base", "bert_tiny")
KINDS = ("instant", "reference")


def tune(network: str, out: Path, *limits: str) -> float:
    """Wall-clock of the whole command."""
    command = [sys.executable, "-m", "tensorese", "tune", f"zoo:{network}", "--out", str(out)]
    started = time.time()
    subprocess.run(
        [*command, *limits], check=True, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL
    )
    return time.time() - started


def end_to_end(network: Any, runs: dict[str, Path], turns: int, secs: float) -> dict[str, Any]:
    """Both libraries in turns, each in a process of its own."""
    from tensorese.deploy.arena import Arena
    from tensorese.targets import Target

    with tempfile.TemporaryDirectory() as name:
        threads = Target.parse("host").threads
        with Arena(Path(name), [network.example(0)], threads) as arena:
            for kind, run in runs.items():
                signature = json.loads((run / "certificate.json").read_text())["signature"]
                library = str(run / "library.so")
                arena.add(kind, {"kind": "library", "library": library, "signature": signature})
                arena.outputs(kind)
            return arena.time(turns, secs)


def task_by_task(network: Any, runs: dict[str, Path], turns: int) -> dict[str, Any]:
    """Each task's programs in turns, those that several runs share once."""
    from tensorese.measure.base import FINALIST, Candidate
    from tensorese.measure.tuning_farm import IN_NETWORK, TuningFarm
    from tensorese.records.run_folder import RunFolder
    from tensorese.targets import Target
    from tensorese.workloads import tasks_of

    target = Target.parse("host")
    best = {kind: RunFolder.read(run).best() for kind, run in runs.items()}
    raced: dict[str, Any] = {}
    with TuningFarm(target, IN_NETWORK, platform=target.platform()) as farm:
        for task in tasks_of(network, target.to_json()):
            found = {
                k: each[task.workload.id] for k, each in best.items() if task.workload.id in each
            }
            programs = {kind: one.program(task.workload) for kind, one in found.items()}
            unique = {program.id: program for program in programs.values()}
            times: dict[str, list[float]] = {key: [] for key in unique}
            for _ in range(turns):
                measured = farm.measure(
                    [Candidate(program=p, origin=FINALIST) for p in unique.values()]
                )
                for key, one in zip(unique, measured, strict=True):
                    times[key].append(one.latency)
            medians = {kind: statistics.median(times[p.id]) for kind, p in programs.items()}
            raced[task.workload.id] = {
                "name": task.name,
                "weight": task.weight,
                "origin": {kind: one.origin for kind, one in found.items()},
                "latency": {k: v if math.isfinite(v) else None for k, v in medians.items()},
            }
    return raced


def ratio_of(latency: dict[str, float | None]) -> float | None:
    """To the faster one; None where a program failed or a task has none."""
    known = [secs for secs in latency.values() if secs]
    instant = latency.get("instant")
    return instant / min(known) if instant and len(known) == len(KINDS) else None


def row_of(name: str, work: Path, minutes: float, turns: int, secs: float) -> dict[str, Any]:
    from tensorese.workloads import load_network

    runs = {kind: work / name / kind for kind in KINDS}
    seconds = tune(name, runs["instant"], "--trials", "0")
    if not (runs["reference"] / "library.so").exists():
        tune(name, runs["reference"], "--minutes", str(minutes))
    network = load_network(f"zoo:{name}")
    tasks = task_by_task(network, runs, turns)
    for task in tasks.values():
        task["origin"] = task["origin"].get("instant", "")
        task["ratio"] = ratio_of(task["latency"])
    latency = end_to_end(network, runs, turns, secs)
    ratios = [task["ratio"] for task in tasks.values() if task["ratio"]]
    certificate = json.loads((runs["instant"] / "certificate.json").read_text())
    return {
        "seconds": seconds,
        "minutes": minutes,
        "speed": latency["reference"]["latency"] / latency["instant"]["latency"],
        "worst_task": max(ratios, default=None),
        "latency": latency,
        "verified": certificate["verification"]["against"],
        "judged_for": certificate["unmeasured"]["judged_for"],
        "tasks": tasks,
    }


def show(rows: dict[str, Any]) -> None:
    print(f"{'network':18} {'seconds':>8} {'speed':>7} {'worst task':>11}")
    for name, row in rows.items():
        worst = f"{row['worst_task']:.2f}x" if row["worst_task"] else "-"
        print(f"{name:18} {row['seconds']:8.1f} {row['speed']:7.3f} {worst:>11}")
    if rows:
        mean = statistics.geometric_mean(row["speed"] for row in rows.values())
        print(f"of the speed of {next(iter(rows.values()))['minutes']:g} minutes: {mean:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--network", nargs="+", default=list(NETWORKS))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--secs", type=float, default=0.4, help="of a library and turn")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "tlm_instant")
    parser.add_argument("--name", default="tlm_instant", help="folder of the result file")
    args = parser.parse_args()
    path = result_file(args.name)
    rows = json.loads(path.read_text())["networks"] if path.exists() else {}
    for name in args.network:
        if name not in rows:
            rows[name] = row_of(name, args.work, args.minutes, args.turns, args.secs)
            write_result(args.name, {"networks": rows})
    show(rows)


if __name__ == "__main__":
    main()
