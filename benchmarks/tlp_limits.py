"""What keeps models from ranking the public logs better: noise, features, or too few workloads?

    python benchmarks/tlp_limits.py --data DIR      # the stores that `tlp_tables.py` reads

LightGBM on the physical features of K80, V100 and MI50, folds 0-2, judged on half of each held-out
task's programs: trees of other workloads (all of them, a half, a quarter), and trees that also saw
the other half of the task's own programs. Beside it how far the best of a task is ahead of the
next ones: a single fast measurement cannot be foretold. Top-1 and top-5, mean per task.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from common import write_result
from tensorese.evaluation.judge import MIN_RECORDS, judged_index
from tensorese.evaluation.ranked import features_of
from tensorese.evaluation.trees import fit_rows, on_scale, tree_labels
from tensorese.features.programs import ProgramSet
from tensorese.training.trees import BOTH, SETTING
from tlp_runs import programs_of, shaken_figures, task_sides

PLATFORMS = ("k80", "v100", "mi50")
FOLDS = (0, 1, 2)
ROUNDS = 150
PLACES = (2, 5, 20, 100)
LOTS = 0.1
"""Scale of the lots beside scores of unit spread; the best of 0 to 0.5 for trees of other tasks."""
KNOWN = {**SETTING, "num_leaves": 127, "max_depth": -1, "min_data_in_leaf": 20}
"""For trees that saw programs of the task: they may be more particular."""

Index = npt.NDArray[Any]


class Limits:
    def __init__(self, data: Path, platform: str) -> None:
        self.data, self.platform = data, platform
        self.programs: ProgramSet = programs_of(data, (platform,))
        self.features = features_of(self.programs, self.programs.machine)
        self.rng = np.random.default_rng(0)
        self.half = self.rng.random(len(self.programs)) < 0.5
        self.share = self._shares()

    def _shares(self) -> npt.NDArray[np.float32]:
        """The task's best over each program's time; 0 where it has none."""
        index, share = tree_labels(self.programs, range(len(self.programs.tasks)))
        found = np.zeros(len(self.programs), dtype=np.float32)
        found[index] = share
        return found

    def said(self, rows: Index, judged: Index, *, known: bool = False) -> npt.NDArray[np.float64]:
        """Scores of the judged programs, of unit spread, by trees of these rows."""
        setting, rounds = (KNOWN, 2 * ROUNDS) if known else (SETTING, ROUNDS)
        total = np.zeros(len(judged))
        for scale in BOTH:
            labels = on_scale(self.share[rows], self.programs.task[rows], scale)
            tree = fit_rows("lightgbm", {**setting, "seed": 0}, self.features[rows], labels, rounds)
            total += tree.predict(self.features[judged])
        return np.asarray((total - total.mean()) / total.std())

    def row(self) -> dict[str, Any]:
        found: dict[str, list[tuple[float, float]]] = {}
        for fold in FOLDS:
            tasks, held = task_sides(self.data, self.programs, fold)
            index = judged_index(self.programs, self.platform, held)
            seen, judged = index[self.half[index]], index[~self.half[index]]
            every = self._of(tasks)
            for name, share in (("a quarter", 0.25), ("a half", 0.5), ("all", 1.0)):
                some = self.rng.permutation(tasks)[: round(share * len(tasks))]
                scores = self.said(self._of(some.tolist()), judged)
                found.setdefault(f"{name} of the other workloads", []).extend(
                    self.judged(judged, scores, LOTS)
                )
            scores = self.said(np.concatenate([every, seen]), judged, known=True)
            found.setdefault("all, and half of the task itself", []).extend(
                self.judged(judged, scores, 0.0)
            )
        means = {name: np.mean(pairs, axis=0).round(4).tolist() for name, pairs in found.items()}
        return {"top-1 and top-5": means, "best over the k-th best": self.places()}

    def _of(self, tasks: Sequence[int]) -> Index:
        valid = self.programs.valid(0)
        return valid[np.isin(self.programs.task[valid], tasks)]

    def judged(
        self, index: Index, scores: npt.NDArray[np.float64], lots: float
    ) -> list[tuple[float, float]]:
        figures = shaken_figures(self.programs, self.platform, index, scores, lots)
        return [(best / first, best / five) for _, best, first, five, *_ in figures.values()]

    def places(self) -> dict[int, float]:
        """Mean over tasks: what taking the k-th best instead of the best would keep."""
        valid, found = self.programs.valid(0), []
        for task in range(len(self.programs.tasks)):
            share = np.sort(self.share[valid[self.programs.task[valid] == task]])[::-1]
            if len(share) >= MIN_RECORDS:
                found.append([share[min(k, len(share)) - 1] for k in PLACES])
        means = np.mean(found, axis=0).tolist()
        return {k: round(float(x), 4) for k, x in zip(PLACES, means, strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    rows = {}
    for platform in PLATFORMS:
        rows[platform] = Limits(args.data, platform).row()
        print(f"{platform}: best over the k-th best {rows[platform]['best over the k-th best']}")
        for name, (first, five) in rows[platform]["top-1 and top-5"].items():
            print(f"  {name:36s} {first:.3f} {five:.3f}", flush=True)
    write_result("tlp_limits", {"rounds": ROUNDS, "folds": FOLDS, "rows": rows})


if __name__ == "__main__":
    main()
