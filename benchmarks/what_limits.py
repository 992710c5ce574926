"""What keeps trees from ranking CPU programs better: tasks, programs, or noise?

    python benchmarks/what_limits.py

LightGBM on the physical features of data/cpu's training part, five folds. Judged out of fold: whole
tasks held out, with all, a half and a quarter of the other tasks' programs, and without the columns
of `language/cpu_code.py`; programs of known tasks held out; and how far what is left unexplained
is the same on two platforms.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from common import ROOT, write_result
from tensorese.evaluation.metrics import mean_top_k
from tensorese.evaluation.ranked import judge_scores
from tensorese.evaluation.trees import fit_tree, score_tree
from tensorese.features.cpu import NAMES
from tensorese.features.programs import ProgramSet, read_programs
from tensorese.language import cpu_code
from tensorese.records.store import Store
from tensorese.training.physics import only, small_set

FOLDS = 5
SETTING = {"num_leaves": 31, "min_data_in_leaf": 20}
LEAST_SHARE = 2.0**-6

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def scores(
    features: npt.NDArray[np.float32], mine: ProgramSet, fold: npt.NDArray[Any], kept: Mask
) -> Floats:
    """Of every program, by trees that saw no program of its fold."""
    found = np.zeros(len(fold))
    tasks = range(len(mine.tasks))
    for k in range(FOLDS):
        seen = (fold != k) & kept
        latency = np.where(seen[:, None], mine.latency, np.nan)
        tree = fit_tree("lightgbm", SETTING, features, replace(mine, latency=latency), tasks)
        found[fold == k] = score_tree("lightgbm", tree, features[fold == k])
    return found


def unexplained(mine: ProgramSet, found: Floats) -> Floats:
    """Log2 of the speed beside what was said of it, around each task's mean; NaN where unknown."""
    rest = -np.log2(mine.latency[:, 0]) - np.log2(np.maximum(found, LEAST_SHARE))
    for task in range(len(mine.tasks)):
        rows = mine.task == task
        if np.isfinite(rest[rows]).any():
            rest[rows] -= np.nanmean(rest[rows])
    return np.asarray(rest)


def main() -> None:
    with Store.open(ROOT / "data" / "cpu") as store:
        given = small_set(read_programs([store], split="train"))
    programs = given.programs
    rng = np.random.default_rng(0)
    by_task = (rng.permutation(len(programs.tasks)) % FOLDS)[programs.task]
    by_program = rng.integers(0, FOLDS, len(programs))
    drawn = rng.random(len(programs))
    whole = given.features
    bare = whole[:, [k for k, name in enumerate(NAMES) if name not in cpu_code.NAMES]]
    ways = {
        "unknown tasks": (whole, by_task, drawn < 1),
        "unknown tasks, nothing of the core": (bare, by_task, drawn < 1),
        "unknown tasks, half the programs": (whole, by_task, drawn < 0.5),
        "unknown tasks, a quarter": (whole, by_task, drawn < 0.25),
        "programs of known tasks": (whole, by_program, drawn < 1),
    }
    result: dict[str, Any] = {}
    rest: dict[str, Floats] = {}
    for platform in programs.platforms:
        mine = only(programs, platform)
        for name, (features, fold, kept) in ways.items():
            found = scores(features, mine, fold, kept)
            judged = judge_scores(mine, platform, found, range(len(mine.tasks)), least=20)
            row = {f"top{k}": mean_top_k(judged, k) for k in (1, 5)}
            row["pairwise"] = float(np.mean([r.pairwise for r in judged]))
            result.setdefault(platform, {})[name] = {**row, "tasks": len(judged)}
            print(platform, name, {k: round(v, 3) for k, v in row.items()}, flush=True)
            if name == "unknown tasks":
                rest[platform] = unexplained(mine, found)
    for one, two in combinations(rest, 2):
        both = np.isfinite(rest[one]) & np.isfinite(rest[two])
        alike = float(np.corrcoef(rest[one][both], rest[two][both])[0, 1])
        spread = [float(rest[name][both].std()) for name in (one, two)]
        result[f"{one} and {two}"] = {"correlation": alike, "log2_spread": spread}
        print(one, two, f"unexplained: correlation {alike:.2f}, spread {spread}")
    write_result("what_limits", result)


if __name__ == "__main__":
    main()
