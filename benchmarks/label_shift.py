"""How times of programs shift when a GPU's copies become asynchronous.

    python benchmarks/label_shift.py choose --out LIST [--data data/h200] [--programs 3000]
    tensorese collect --tasks data/tasks.parquet --target cuda --platform h200 --programs LIST \\
        --only-programs --minutes 8 --out AGAIN
    python benchmarks/label_shift.py report AGAIN [--data data/h200]

`choose` lists known programs for `collect`, task by task so that whole tasks are compared:
pipelined ones, which alone have asynchronous copies, and one in six without a pipeline, whose
shift is the noise between two sittings. `report` holds the new times against the old and writes
benchmarks/results/label_shift/PLATFORM.json.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from common import write_result

PIPELINE = "software_pipeline_stage"
_PLAIN = 6  # one in so many


def choose(data: Path, platform: str, n: int, seed: int, out: Path) -> int:
    """Of tasks in random order, their valid programs."""
    from tensorese.records.programs import UnmeasuredProgram
    from tensorese.records.store import Store

    with Store.open(data) as store:
        by_task: dict[str, dict[str, Any]] = defaultdict(dict)
        for one in store.measurements(platform=platform):
            if one.latency:
                by_task[one.program.workload.id][one.program.id] = one.program
    tasks = sorted(by_task)
    random.Random(seed).shuffle(tasks)
    chosen: list[Any] = []
    for task in tasks:
        programs = [by_task[task][name] for name in sorted(by_task[task])]
        plain = [p for p in programs if PIPELINE not in p.sketch.body]
        chosen += [p for p in programs if PIPELINE in p.sketch.body] + plain[::_PLAIN]
        if len(chosen) >= n:
            break
    with Store.open(out, create=True) as store:
        store.add_programs([UnmeasuredProgram(program=p, origin="again") for p in chosen[:n]])
    return len(chosen[:n])


def report(data: Path, again: Path, platform: str) -> dict[str, Any]:
    from tensorese.evaluation.noise import (
        difference,
        latencies,
        measured_twice,
        tasks_of_programs,
        top_ratios,
    )
    from tensorese.records.store import Store

    with Store.open(data) as first, Store.open(again) as second:
        old, new = latencies(first, platform), latencies(second, platform)
        task_of = tasks_of_programs(first, platform)
        piped = _pipelined(first, platform)
    parts = {"pipelined": old.keys() & piped, "plain": old.keys() - piped}
    result: dict[str, Any] = {"platform": platform}
    for name, ids in parts.items():
        mine = {k: old[k] for k in ids}
        groups = measured_twice(mine, new, task_of)
        kept = {k: top_ratios(groups, new, old, k).values() for k in (1, 5)}
        result[name] = {
            **difference(new, mine).to_dict(),
            "over_5_percent": _share(abs(new[k] / old[k] - 1) > 0.05 for k in ids & new.keys()),
            "tasks": len(groups),
            "top1_of_old_labels": sum(kept[1]) / max(1, len(groups)),
            "top5_of_old_labels": sum(kept[5]) / max(1, len(groups)),
        }
    return result


def _pipelined(store: Any, platform: str) -> set[str]:
    table = store.table(["program_id", "sketch_id"], platform=platform)
    pairs = zip(table["program_id"].to_pylist(), table["sketch_id"].to_pylist(), strict=True)
    bodies = {one.id: one.body for one in store.sketches().values()}
    return {name for name, sketch in pairs if PIPELINE in bodies[sketch]}


def _share(flags: Iterable[bool]) -> float:
    values = list(flags)
    return sum(values) / max(1, len(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    stages = parser.add_subparsers(dest="stage", required=True)
    first = stages.add_parser("choose")
    first.add_argument("--out", type=Path, required=True)
    first.add_argument("--programs", type=int, default=3000)
    first.add_argument("--seed", type=int, default=0)
    second = stages.add_parser("report")
    second.add_argument("again", type=Path)
    for stage in (first, second):
        stage.add_argument("--data", type=Path, default=Path("data/h200"))
        stage.add_argument("--platform", default="h200")
    args = parser.parse_args()
    if args.stage == "choose":
        n = choose(args.data, args.platform, args.programs, args.seed, args.out)
        print(f"{n:,} programs in {args.out}")
        return
    result = report(args.data, args.again, args.platform)
    for name in ("pipelined", "plain"):
        print(name, *(f"{key} {value:.4g}" for key, value in result[name].items()))
    print(write_result("label_shift", result, machine=args.platform))


if __name__ == "__main__":
    main()
