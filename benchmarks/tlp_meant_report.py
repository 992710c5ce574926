"""The tables of `tlp_meant.py`: means over seeds and tasks, intervals over tasks, curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bench_models import LOWERED, by_task, gained, paired
from common import RESULTS, read_rows
from tensorese.evaluation.metrics import bootstrap

CPUS = ("emeraldrapids-1c", "emeraldrapids-2c", "emeraldrapids-16c", "znver4-2c", "znver3-2c")
STORES = {**dict.fromkeys(CPUS, "cpu"), "h200": "h200"}
COUNTS = (500, 5000)


def lowered_rows() -> list[dict[str, Any]]:
    folder = RESULTS / "lowered_trees"
    rows = [row for path in sorted(folder.glob("*.jsonl")) for row in read_rows(path)]
    return [row for row in rows if row["model"] == LOWERED]


def line(name: str, rows: Sequence[dict[str, Any]], beside: Sequence[dict[str, Any]]) -> str:
    """Means over seeds and tasks; the difference is paired by task."""
    top1, top5 = by_task(rows, 0), by_task(rows, 1)
    interval = bootstrap(list(top1.values()))
    cells = [
        f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]",
        f"{np.mean(list(top5.values())):.3f}",
        f"{np.mean([row['pairwise'] for row in rows]):.3f}",
        paired(top1, by_task(beside, 0)) if beside else "",
        f"{np.mean([row['seconds'] for row in rows]):.0f}",
        str(len(rows)),
    ]
    return f"| {name} | {' | '.join(cells)} |"


def head(first: str, rival: str) -> str:
    names = (first, "top-1", "top-5", "pairwise", f"top-1 less {rival}", "seconds", "seeds")
    return f"| {' | '.join(names)} |\n|{'---|' * len(names)}"


def by_system(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    return {
        name: [row for row in rows if row["system"] == name]
        for name in dict.fromkeys(row["system"] for row in rows)
    }


def print_stage(rows: Sequence[dict[str, Any]], stage: str) -> None:
    lowered = lowered_rows()
    for platform in STORES:
        mine = [row for row in rows if row["stage"] == stage and row["platform"] == platform]
        if not mine:
            continue
        rival = [row for row in lowered if row["platform"] == platform]
        first = mine[0]
        print(f"\n{stage}, {platform}, {first['tasks']} test tasks")
        print(head("system", LOWERED))
        for name, ours in by_system(mine).items():
            print(line(name, ours, rival))
        one, five = first["random_top1"], first["random_top5"]
        print(f"| random order | {one:.3f} | {five:.3f} | 0.5 | | | |")


def print_mtl(rows: Sequence[dict[str, Any]], stage: str) -> None:
    """By target and labels, each less the same labels alone; what hurts is named."""
    for target in CPUS:
        for count in (0, *COUNTS):
            mine = [
                row
                for row in rows
                if (row["stage"], row["platform"], row.get("labels")) == (stage, target, count)
            ]
            systems = by_system(mine)
            if not systems:
                continue
            print(f"\n{stage}, {count} labels of {target}")
            print(head("beside them", "alone"))
            for name, ours in systems.items():
                print(line(name, ours, systems.get("alone", []) if name != "alone" else []))
            print_negative(systems)


def print_negative(systems: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    """Every helper that was added to a set and lowered top-1 by more than luck."""
    sets = {frozenset(n[2:].split(", ")): n for n in systems if n.startswith("+ ")}
    sets |= {frozenset(): "alone"} if "alone" in systems else {}
    for small, large in ((a, b) for a in sets for b in sets if a < b and len(b) == len(a) + 1):
        less, more = (by_task(systems[sets[one]], 0) for one in (small, large))
        change = [more[task] - less[task] for task in sorted(set(more) & set(less))]
        if bootstrap(change).high < 0:
            [added] = large - small
            print(f"negative transfer: {added} added to {sets[small]}: {gained(change)}")


def print_push(rows: Sequence[dict[str, Any]]) -> None:
    mine = [row for row in rows if row["stage"] == "push"]
    if not mine:
        return
    print("\npush, validation tasks, top-1 / top-5, seed 0")
    print(f"| system | parameters | {' | '.join(STORES)} |\n|---|---|{'---|' * len(STORES)}")
    for name, ours in by_system(mine).items():
        said = {row["platform"]: row["validation"] for row in ours}
        cells = [
            f"{said[p]['top1']:.3f} / {said[p]['top5']:.3f}" if p in said else "" for p in STORES
        ]
        print(f"| {name} | {ours[0]['parameters']:,} | {' | '.join(cells)} |")


def print_curves(rows: Sequence[dict[str, Any]]) -> None:
    """Validation tasks over the epochs, seed 0; the epoch that was kept beside."""
    mine = [
        row for row in rows if row.get("curve") and row["seed"] == 0 and row["stage"] == "single"
    ]
    for row in mine:
        points = row["curve"]
        shown = points[:: max(1, len(points) // 8)]
        shown += [points[-1]] if shown[-1] != points[-1] else []
        cells = [f"{int(e)}: {loss:.3f}, {t1:.3f} / {t5:.3f}" for e, loss, t1, t5 in shown]
        where = f"{row['platform']}, {row['system']}, kept {row['kept_epoch']}"
        print(f"curve, {where}: {'; '.join(cells)}")


def report(rows: Sequence[dict[str, Any]]) -> None:
    for stage in ("single", "losses", "trunk", "chosen"):
        print_stage(rows, stage)
    print_push(rows)
    for stage in ("mtl", "mtl, published"):
        print_mtl(rows, stage)
    print_curves(rows)
