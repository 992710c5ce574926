"""The table of the models that ship, from test rows of three seeds of each system.

    python benchmarks/bench_models.py [ROWS.jsonl ...] [--check COMPARED.json]

Test rows of every platform: figures are means over seeds and tasks, intervals and paired
differences are bootstraps over tasks. Writes `benchmarks/results/bench_models/table.md`; without
ROWS it reads `results/bench_models/*.jsonl` (models and trees) and the rows of `lowered_trees.py`.
What was measured twice and the pairs come from `results/bench_models/shipped.json`, which is what
`tensorese compare --trees --json` printed; `--check` shows that a later print is the same.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common import RESULTS, read_rows
from tensorese.evaluation.metrics import bootstrap

LOWERED = "xgboost on lowered features"
SAME_INPUTS = ("lightgbm", "xgboost")
TREES = (*SAME_INPUTS, LOWERED, "lightgbm on lowered features")
Rows = Sequence[dict[str, Any]]
Twice = Mapping[str, Mapping[str, float]]
"""By top1 and top5: ratios by task, among the programs that were measured twice."""


def by_task(rows: Rows, k: int) -> dict[str, float]:
    """Top-1 (k 0) or top-5 (k 1) of each task, the mean over seeds."""
    tasks = sorted(set.intersection(*(set(row["ratios"]) for row in rows)))
    return {task: float(np.mean([row["ratios"][task][k] for row in rows])) for task in tasks}


def paired(mine: dict[str, float], theirs: dict[str, float]) -> str:
    both = sorted(set(mine) & set(theirs))
    return gained([mine[task] - theirs[task] for task in both])


def gained(differences: Sequence[float]) -> str:
    interval = bootstrap(differences)
    return f"{interval.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"


def ceilings(rows: Rows) -> dict[str, list[str]]:
    """Lines on the oracle of every platform that was measured twice, and on what ships beside it.

    Both are judged on the same programs; of what ships that is the one seed in the wheel.
    """
    by_system = {(row["platform"], row["system"]): row["twice"] for row in rows if row["twice"]}
    return {
        platform: _beside_oracle(oracle, by_system[platform, platform])
        for (platform, system), oracle in by_system.items()
        if system == "oracle" and (platform, platform) in by_system
    }


def _beside_oracle(oracle: Twice, mine: Twice) -> list[str]:
    behind = [gained([mine[k][t] - oracle[k][t] for t in oracle[k]]) for k in ("top1", "top5")]
    means = [
        " | ".join(f"{np.mean(list(ratios[k].values())):.3f}" for k in ("top1", "top5"))
        for ratios in (oracle, mine)
    ]
    return [
        f"| | oracle: {len(oracle['top1'])} tasks measured twice | {means[0]} | | | | |",
        f"| | what ships, on the oracle's programs | {means[1]} | | "
        f"less the oracle's {behind[0]} | | top-5 {behind[1]} |",
    ]


def differences(now: Rows, kept: Rows) -> list[str]:
    """Figures of rows that both have and that are not equal to the four digits that are kept."""
    known = {(row["platform"], row["system"]): row for row in kept}
    return [
        f"{row['platform']}, {row['system']}: {key}"
        for row in now
        for key, value in known.get((row["platform"], row["system"]), {}).items()
        if not _same(row[key], value)
    ]


def _same(now: Any, kept: Any) -> bool:
    if isinstance(kept, dict):
        return now.keys() == kept.keys() and all(_same(now[key], kept[key]) for key in kept)
    return bool(now == kept if isinstance(kept, str) else abs(now - kept) < 6e-5)


def table(rows: Rows, tops: dict[str, list[str]]) -> list[str]:
    lines = [
        "| platform (tasks) | system | top-1 | top-5 | pairwise | top-1 less the better tree's on "
        "the same inputs | less that of XGBoost on lowered features | top-5 less the latter's |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for platform in sorted({row["platform"] for row in rows}):
        mine = [row for row in rows if row["platform"] == platform]
        trees = [[row for row in mine if row["model"] == kind] for kind in SAME_INPUTS]
        best = max(filter(None, trees), key=_top1, default=None)
        lowered = [row for row in mine if row["model"] == LOWERED] or None
        count = mine[0]["tasks"]
        first = f"`{platform}` ({count})"
        for system in _systems(mine):
            told = [row for row in mine if row["model"] == system]
            lines.append(f"| {first} | {system} | {_figures(told, best, lowered)} |")
            first = ""
        random = [np.mean([row[f"random_top{k}"] for row in mine]) for k in (1, 5)]
        lines.append(f"| | random order | {random[0]:.3f} | {random[1]:.3f} | 0.5 | | | |")
        lines += tops.get(platform, [])
    return lines


def _top1(rows: Rows) -> float:
    return float(np.mean([row["top1"] for row in rows]))


def _systems(rows: Rows) -> Iterable[str]:
    names = list(dict.fromkeys(row["model"] for row in rows))
    return sorted(names, key=lambda name: (name in TREES, "alone" in name, "others" in name))


def _figures(rows: Rows, best: Rows | None, lowered: Rows | None) -> str:
    top1, top5 = by_task(rows, 0), by_task(rows, 1)
    interval = bootstrap(list(top1.values()))
    pairwise = float(np.mean([row["pairwise"] for row in rows]))
    gains = ["", "", ""]
    if rows[0]["model"] not in TREES:
        against = [(top1, best, 0), (top1, lowered, 0), (top5, lowered, 1)]
        gains = [paired(mine, by_task(tree, k)) if tree else "" for mine, tree, k in against]
    return (
        f"{interval.mean:.3f} [{interval.low:.3f}, {interval.high:.3f}] "
        f"| {np.mean(list(top5.values())):.3f} | {pairwise:.3f} | {' | '.join(gains)}"
    )


def together(rows: Rows) -> list[str]:
    """Over all platforms of a store: a task counts once, with its mean over the platforms.

    The same tasks are judged everywhere, so this is where a difference can be told from luck.
    """
    lines = ["| store (platforms) | against | tasks | top-1 | top-5 |", "|---|---|---|---|---|"]
    for store in sorted({row["store"] for row in rows}):
        mine = [row for row in rows if row["store"] == store]
        platforms = sorted({row["platform"] for row in mine})
        for rival in TREES:
            gains: list[dict[str, list[float]]] = [{}, {}]
            for platform in platforms:
                of = [row for row in mine if row["platform"] == platform]
                ours = [row for row in of if row["model"] == f"{platform} with trees"]
                theirs = [row for row in of if row["model"] == rival]
                for k, found in enumerate(gains if ours and theirs else ()):
                    us, them = by_task(ours, k), by_task(theirs, k)
                    for task in sorted(set(us) & set(them)):
                        found.setdefault(task, []).append(us[task] - them[task])
            if gains[0]:
                shown = [gained([float(np.mean(v)) for v in g.values()]) for g in gains]
                count = len(gains[0])
                lines.append(
                    f"| {store} ({len(platforms)}) | {rival} | {count} | {shown[0]} | {shown[1]} |"
                )
    return lines


def few(rows: Rows) -> list[str]:
    """A thousand labels of a platform and all of the others', less all labels; paired by task."""
    lines = [
        "| platform | few labels | all labels (MTL) | top-1 less | top-5 less | pairs less | "
        "top-1 less what ships |",
        "|---|---|---|---|---|---|---|",
    ]
    label = "1000 and others with trees"
    gains: list[dict[str, list[float]]] = [{}, {}, {}, {}]
    for platform in sorted({row["platform"] for row in rows if row["model"] == label}):
        told = {
            name: [row for row in rows if (row["platform"], row["model"]) == (platform, name)]
            for name in (label, "mtl-cpu with trees", f"{platform} with trees")
        }
        mine, whole, ships = told.values()
        against = [(whole, 0), (whole, 1), (whole, 2), (ships, 0)]
        shown = []
        for found, (rival, k) in zip(gains, against, strict=True):
            us, them = by_task(mine, k), by_task(rival, k)
            shown.append(paired(us, them))
            for task in sorted(set(us) & set(them)):
                found.setdefault(task, []).append(us[task] - them[task])
        figures = " | ".join(f"{_top1(of):.3f}" for of in (mine, whole))
        lines.append(f"| `{platform}` | {figures} | {' | '.join(shown)} |")
    if gains[0]:
        shown = [gained([float(np.mean(v)) for v in found.values()]) for found in gains]
        lines.append(f"| all, a task counts once | | | {' | '.join(shown)} |")
    return lines


def pairs(shipped: Rows, lowered: Rows) -> list[str]:
    """Pairs ordered right by what ships (the one seed in the wheel), less those of each tree.

    Luck decides which of some near-best programs measured best, and so most of top-1; it has
    little part in this. Rows of `lowered` that have it by task stand beside.
    """
    said = {(row["platform"], row["system"]): row["pairs"] for row in shipped if row.get("pairs")}
    for row in lowered:
        known = {task: figures[2] for task, figures in row["ratios"].items() if len(figures) > 2}
        if known:
            said[row["platform"], row["model"]] = known
    platforms = sorted({platform for platform, system in said if platform == system})
    lines = ["| platform | ships | " + " | ".join(f"less {rival}" for rival in TREES) + " |"]
    lines.append("|---|---|" + "---|" * len(TREES))
    gains: dict[str, dict[str, list[float]]] = {rival: {} for rival in TREES}
    for platform in platforms:
        mine, shown = said[platform, platform], []
        for rival in TREES:
            theirs = said.get((platform, rival), {})
            both = sorted(set(mine) & set(theirs))
            shown.append(gained([mine[t] - theirs[t] for t in both]) if both else "")
            for task in both if platform != "h200" else ():
                gains[rival].setdefault(task, []).append(mine[task] - theirs[task])
        mean = np.mean(list(mine.values()))
        lines.append(f"| `{platform}` | {mean:.3f} | {' | '.join(shown)} |")
    all_of = [
        gained([float(np.mean(v)) for v in by_task.values()]) if by_task else ""
        for by_task in gains.values()
    ]
    lines.append(f"| all CPUs, a task counts once | | {' | '.join(all_of)} |")
    return lines


def choices(rows: Rows) -> list[str]:
    """What was tried on validation tasks, the mean over platforms, models and seeds."""
    lines = ["| store | recipe | top-1 | top-5 | mean of the top five |", "|---|---|---|---|---|"]
    keys = list(dict.fromkeys((row["store"], row["recipe"]) for row in rows))
    for store, recipe in keys:
        mine = [row for row in rows if (row["store"], row["recipe"]) == (store, recipe)]
        figures = (float(np.mean([r[k] for r in mine])) for k in ("top1", "top5", "steady"))
        lines.append(f"| {store} | {recipe} | " + " | ".join(f"{x:.3f}" for x in figures) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", type=Path, nargs="*")
    parser.add_argument("--check", type=Path, help="What `tensorese compare --json` prints now.")
    args = parser.parse_args()
    shipped = json.loads((RESULTS / "bench_models" / "shipped.json").read_text())
    if args.check:
        different = differences(json.loads(args.check.read_text()), shipped)
        sys.exit("\n".join(different) or None)
    folders = [RESULTS / name for name in ("bench_models", "lowered_trees")]
    files = args.rows or [path for folder in folders for path in sorted(folder.glob("*.jsonl"))]
    rows = [row for path in files for row in read_rows(path) if "part" in row]
    test = [row for row in rows if row["part"] == "test"]
    lines = ["# The models that ship, on test rows", ""]
    lines += table(test, ceilings(shipped))
    lines += ["", "## All platforms of a store together", ""]
    lines += ["The platform's own model with trees, less each tree; paired by task.", ""]
    lines += together(test)
    lines += ["", "## A thousand labels", "", "Networks and trees, 3 seeds.", "", *few(test)]
    lines += ["", "## Pairs ordered right", "", "Paired by task, intervals by bootstrap.", ""]
    lines += pairs(shipped, [row for row in test if "on lowered" in row["model"]])
    lines += ["", "## Recipes on validation tasks", ""]
    lines += choices([row for row in rows if row["part"] == "validation"])
    (RESULTS / "bench_models" / "table.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
