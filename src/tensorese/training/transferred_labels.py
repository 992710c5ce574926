"""Labels that a platform lacks, expected from those that others have of the same programs.

What is hard to know about a program is much the same everywhere: how its time compares on two
platforms is easier to learn than the time itself, and a thousand labels cover much of it. With the
labels of the others transferred, a platform is trained on as if it had measured what they have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Floats64
from tensorese.features.programs import ProgramSet
from tensorese.models.trees import from_lightgbm, mean_of
from tensorese.training.labels import is_label, task_level
from tensorese.training.trees import Setting, fit_rows

SETTING: Setting = {
    "num_leaves": 7,
    "learning_rate": 0.05,
    "min_data_in_leaf": 20,
    "feature_fraction": 0.3,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
}
ROUNDS, BAGS = 200, 6
"""Few labels: small trees, several times, each time of a part of them."""
FEW, ENOUGH = 0.25, 100
"""A platform has few labels beside one that has four times as many; as many as `ENOUGH` of them
must be of programs that another has too, or nothing can be expected."""


def fill_few(
    features: npt.NDArray[np.float32], programs: ProgramSet, tasks: npt.ArrayLike, *, seed: int = 0
) -> tuple[ProgramSet, str]:
    """Labels for the platforms that have few, and a note for the log."""
    known = np.isfinite(_octaves(programs, tasks))
    counts = known.sum(0)
    latency, lines = programs.latency.copy(), []
    for head, platform in enumerate(programs.platforms):
        common = int((known[:, head] & (known.sum(1) > 1)).sum())
        if counts[head] < FEW * counts.max() and common >= ENOUGH:
            expected = transferred(features, programs, platform, tasks, seed=seed)
            latency[:, head] = expected.latency[:, head]
            added = len(expected.valid(head)) - len(programs.valid(head))
            lines.append(
                f"{platform} has few labels and learns {added:,} of the others', transferred "
                "(--set transfer=false: none)"
            )
    return replace(programs, latency=latency), "; ".join(lines)


def transferred(
    features: npt.NDArray[np.float32],
    programs: ProgramSet,
    platform: str,
    tasks: npt.ArrayLike,
    *,
    seed: int = 0,
    more: Setting | None = None,
) -> ProgramSet:
    """`programs` with a label on `platform` for all of these tasks' programs that another has.

    Its own labels stay what they are beside each other, and what failed there gets none. How fast
    a task is there as a whole is a guess, which orders none of its programs.
    """
    octaves = _octaves(programs, tasks)
    head = programs.head(platform)
    mine, others = octaves[:, head], np.delete(octaves, head, axis=1)
    expected = _expected(programs.task, mine, others)
    index = np.nonzero(np.isfinite(mine) & np.isfinite(expected))[0]
    if not len(index):
        return programs
    off = (mine - expected)[index]
    labels = np.asarray(off - np.median(off), dtype=np.float32)
    setting = {**SETTING, **(more or {})}
    grown = [
        from_lightgbm(
            fit_rows("lightgbm", {**setting, "seed": seed + k}, features[index], labels, ROUNDS)
        )
        for k in range(BAGS)
    ]
    guess = expected + mean_of(grown).predict(features)
    completed = np.where(np.isfinite(mine), mine - _gap(programs, mine - guess), guess)
    latency = programs.latency.copy()
    known = np.isfinite(completed) & ~programs.failed[:, head]
    latency[known, head] = 2.0 ** completed[known]
    return replace(programs, latency=latency)


def _octaves(programs: ProgramSet, tasks: npt.ArrayLike) -> Floats64:
    """`[n, platforms]`: the logarithm of every label in these tasks, else not a number."""
    known = np.isin(programs.task, np.asarray(tasks))[:, None] & is_label(programs.latency)
    return np.log2(np.where(known, programs.latency, np.nan).astype(np.float64))


def _expected(task: npt.NDArray[Any], mine: Floats64, others: Floats64) -> Floats64:
    """`[n]`: a program's label expected from the others', those nearest to `mine` counting most.

    Platforms have measured some of a task's programs each: levels of the task on each of them make
    their labels comparable.
    """
    row, column = np.nonzero(np.isfinite(others))
    level = np.full((int(task.max()) + 1, others.shape[1]), np.nan)
    level[task[row], column] = task_level(task, row, column, others[row, column])
    there = np.isfinite(others)
    both = there & np.isfinite(mine)[:, None]
    spread = [
        np.var((mine - other)[is_both]) if is_both.any() else np.inf
        for other, is_both in zip(others.T, both.T, strict=True)
    ]
    weight = np.where(there, 1.0 / np.maximum(spread, 1e-6), 0.0)
    total = weight.sum(1)
    own = np.where(there, others - level[task], 0.0)
    with np.errstate(invalid="ignore"):
        mean = (own * weight).sum(1) / np.where(total > 0, total, np.nan)
    seen = np.isfinite(level)
    base = np.where(seen, level, 0.0).sum(1) / np.maximum(seen.sum(1), 1)
    return np.asarray(mean + base[task])


def _gap(programs: ProgramSet, off: Floats64) -> Floats64:
    """`[n]`: by how much a task's own labels lie above what is guessed of them, in the mean."""
    known = np.isfinite(off)
    n = len(programs.tasks)
    count = np.bincount(programs.task[known], minlength=n)
    total = np.bincount(programs.task[known], off[known], minlength=n)
    gap = np.where(count > 0, total / np.maximum(count, 1), np.median(off[known]))
    return np.asarray(gap[programs.task])
