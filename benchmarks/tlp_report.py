"""The rows as Markdown tables: means per task, seeds averaged first, bootstrap over tasks."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from tensorese.evaluation.metrics import bootstrap
from tlp_runs import PLATFORMS
from tlp_trees import chosen

Rows = list[dict[str, Any]]
FULL = "matrix and physics"
FIELDS = {"top1": 2, "top5": 3, "top10": 4}


def per_task(rows: Rows, figure: str, part: str = "tasks") -> dict[str, float]:
    """Task to figure, averaged over seeds (a task is held out in one fold only)."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for task, numbers in row[part].items():
            if figure in FIELDS:
                found[task].append(numbers[1] / numbers[FIELDS[figure]])
            else:
                found[task].append(numbers[{"pairwise": 5, "random1": 6, "random5": 7}[figure]])
    return {task: float(np.mean(values)) for task, values in found.items()}


def pooled(rows: Rows, figure: str) -> float:
    best: dict[str, float] = {}
    chosen_: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for task, numbers in row["tasks"].items():
            best[task] = numbers[1]
            chosen_[task].append(numbers[FIELDS[figure]])
    return sum(best.values()) / sum(float(np.mean(v)) for v in chosen_.values())


def _cell(rows: Rows, figure: str, part: str = "tasks") -> str:
    values = per_task(rows, figure, part)
    if not values:
        return "-"
    interval = bootstrap(list(values.values()))
    return f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def _select(rows: Rows, table: str, system: str, platform: str) -> Rows:
    return [
        r
        for r in rows
        if r["table"] == table and r["system"] == system and r["platform"] == platform
    ]


def main_table(rows: Rows) -> str:
    lines = [
        "| platform | system | tasks | top-1 | top-5 | pooled top-1 | pairwise | thinned top-1 | "
        "thinned top-5 | epochs, steps, seeds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for platform in PLATFORMS:
        for system, found in systems(rows, platform).items():
            if not found:
                continue
            tasks = len(per_task(found, "top1"))
            pair = float(np.mean(list(per_task(found, "pairwise").values())))
            recipe = f"{found[0]['epochs']}, {found[0]['steps']}, {len({r['seed'] for r in found})}"
            lines.append(
                f"| {platform} | {system} | {tasks} | {_cell(found, 'top1')} | "
                f"{_cell(found, 'top5')} | {pooled(found, 'top1'):.3f} | {pair:.3f} | "
                f"{_cell(found, 'top1', 'thin')} | {_cell(found, 'top5', 'thin')} | {recipe} |"
            )
        known = _select(rows, "main", "tlp", platform)
        if known:
            one, five = (np.mean(list(per_task(known, f).values())) for f in ("random1", "random5"))
            thin = [
                np.mean(list(per_task(known, f, "thin").values())) for f in ("random1", "random5")
            ]
            lines.append(
                f"| {platform} | random order | | {one:.3f} | {five:.3f} | | 0.5 | {thin[0]:.3f} | "
                f"{thin[1]:.3f} | exact |"
            )
    return "\n".join(lines)


def systems(rows: Rows, platform: str) -> dict[str, Rows]:
    ours = ("tlp", "tlp without lots", "third", "mtl-tlp", "second", "first", "paper")
    found = {name: _select(rows, "main", name, platform) for name in ours}
    for columns in (FULL, "matrix"):
        trees = [r for r in rows if r["table"] == "trees" and r["columns"] == columns]
        for system in ("lightgbm", "xgboost"):
            name = f"{system} {chosen(trees, system, platform)}"
            found[f"{name} ({columns})"] = _select(trees, "trees", name, platform)
            shaken = _select(trees, "trees", f"{name} with lots", platform)
            if shaken:
                found[f"{name} with lots ({columns})"] = shaken
    return found


FORMER = {
    "first": {"tlp": "first", "paper": "paper"},
    "second": {"tlp": "second", "mtl-tlp": "mtl-tlp"},
    "third": {"tlp": "third"},
}


def with_former(rows: Rows, former: dict[str, Rows]) -> Rows:
    """Main rows of former tables stand beside the new ones.

    `first` is before the physical features; `second` before knots and lots, and the last that
    has MTL-TLP; `third` has four networks where the default now has trees.
    """
    both = list(rows)
    for place, names in FORMER.items():
        for row in former[place]:
            if row["table"] == "main" and row["system"] in names:
                both.append({**row, "system": names[row["system"]]})
            elif row["table"] == "trees" and place == "first":
                both.append(row)
    return [{**row, "columns": row["settings"].get("columns", "matrix")} for row in both]


def paired_table(rows: Rows) -> str:
    """Ours minus the tree on the same tasks."""
    lines = ["| platform | ours | against | top-1 difference | top-5 difference |"]
    lines.append("|---|---|---|---|---|")
    for platform in PLATFORMS:
        found = systems(rows, platform)
        for mine in ("tlp", "mtl-tlp"):
            for other, theirs in found.items():
                if not other.startswith(("lightgbm", "xgboost")) or not theirs or not found[mine]:
                    continue
                cells = []
                for figure in ("top1", "top5"):
                    a, b = per_task(found[mine], figure), per_task(theirs, figure)
                    gap = bootstrap([a[t] - b[t] for t in a if t in b])
                    cells.append(f"{gap.mean:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]")
                lines.append(f"| {platform} | {mine} | {other} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def flat_table(rows: Rows, table: str) -> str:
    """One line per system and platform, in the order the rows came."""
    lines = ["| system | platform | top-1 | top-5 | pairwise | folds x seeds, epochs, steps |"]
    lines.append("|---|---|---|---|---|---|")
    for system, platform in dict.fromkeys(
        (r["system"], r["platform"]) for r in rows if r["table"] == table
    ):
        found = _select(rows, table, system, platform)
        seeds = [_mean([r], "top1") for r in found]
        spread = f" (runs {min(seeds):.3f}-{max(seeds):.3f})"
        recipe = f"{len(found)}, {found[0]['epochs']}, {found[0]['steps']}"
        lines.append(
            f"| {system} | {platform} | {_mean(found, 'top1'):.3f}{spread} | "
            f"{_mean(found, 'top5'):.3f} | {_mean(found, 'pairwise'):.3f} | {recipe} |"
        )
    return "\n".join(lines)


def few_labels_table(rows: Rows) -> str:
    """A target with few labels of its own: top-1 / top-5, and the gain over training alone."""
    lines = ["| target | labels | alone | with | top-1 / top-5 | top-1 gain over alone, paired |"]
    lines.append("|---|---|---|---|---|---|")
    for platform in PLATFORMS:
        for labels in ("500", "2000", "8000", "all"):
            found = [r for r in rows if r["table"] == f"mtl {labels}" and r["platform"] == platform]
            alone = [r for r in found if r["system"] == "alone"]
            if not alone:
                continue
            cell = f"{_mean(alone, 'top1'):.3f} / {_mean(alone, 'top5'):.3f}"
            lines += [f"| {platform} | {labels} | {cell} | | | |"] if labels == "all" else []
            for system in dict.fromkeys(r["system"] for r in found if r["system"] != "alone"):
                mine = [r for r in found if r["system"] == system]
                a, b = per_task(mine, "top1"), per_task(alone, "top1")
                gap = bootstrap([a[t] - b[t] for t in a if t in b])
                lines.append(
                    f"| {platform} | {labels} | {cell} | {system} | {_mean(mine, 'top1'):.3f} / "
                    f"{_mean(mine, 'top5'):.3f} | {gap.mean:+.3f} [{gap.low:+.3f}, "
                    f"{gap.high:+.3f}] |"
                )
    return "\n".join(lines)


def _mean(rows: Rows, figure: str) -> float:
    return float(np.mean(list(per_task(rows, figure).values())))


def report(rows: Rows) -> str:
    parts = []
    if any(r["table"] == "main" for r in rows):
        parts += ["## Unseen workloads, 5 folds", main_table(rows)]
        parts += ["## Paired with the trees", paired_table(rows)]
    if any(r["table"].startswith("mtl ") for r in rows):
        parts += ["## A target with few labels", few_labels_table(rows)]
    names = dict.fromkeys(r["table"] for r in rows)
    for name in names:
        if name not in ("main", "trees", "smoke") and not name.startswith("mtl "):
            parts += [f"## {name}", flat_table(rows, name)]
    return "\n\n".join(parts)
