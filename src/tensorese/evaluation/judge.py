"""Scores of a whole program set, judged task by task on one platform."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tensorese.evaluation.metrics import TaskResult, judge
from tensorese.features.programs import ProgramSet

MIN_RECORDS = 64
NEAR_BEST = 0.9


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Tasks with enough records, and the small ones apart."""

    tasks: tuple[TaskResult, ...]
    small: tuple[TaskResult, ...]


def judged_index(
    programs: ProgramSet,
    platform: str,
    tasks: Collection[int],
    *,
    thin: bool = False,
    seed: int = 0,
) -> npt.NDArray[np.int64]:
    """Valid programs of the tasks; `thin` keeps a tenth of those within 10 % of their best.

    Guided searches leave mostly near-best records, which flatter any ranking. The best itself
    always stays.
    """
    head = programs.head(platform)
    index = programs.valid(head)
    index = index[np.isin(programs.task[index], np.asarray(list(tasks), dtype=np.int64))]
    if not thin:
        return index
    latency = programs.latency[index, head]
    best = np.full(len(programs.tasks), np.inf)
    np.minimum.at(best, programs.task[index], latency)
    ratio = best[programs.task[index]] / latency
    lucky = np.random.default_rng(seed).random(len(index)) < 0.1
    kept: npt.NDArray[np.int64] = index[(ratio < NEAR_BEST) | (ratio == 1.0) | lucky]
    return kept


def judge_programs(
    programs: ProgramSet,
    platform: str,
    index: npt.NDArray[np.int64],
    scores: npt.ArrayLike,
    *,
    pairs: int = 2000,
) -> Verdict:
    """`scores[k]` belongs to program `index[k]`."""
    head = programs.head(platform)
    latency = programs.latency[index, head]
    task = programs.task[index]
    given = np.asarray(scores, dtype=np.float64)
    large: list[TaskResult] = []
    small: list[TaskResult] = []
    for k in np.unique(task):
        mine = task == k
        result = judge(programs.tasks[k], given[mine], latency[mine], pairs=pairs)
        (large if result.n >= MIN_RECORDS else small).append(result)
    return Verdict(tasks=tuple(large), small=tuple(small))


LEAST = 5
"""Programs of a task from which a ranking of it is judged."""


def judge_scores(
    programs: ProgramSet,
    platform: str,
    scores: npt.NDArray[np.float64],
    tasks: Sequence[int],
    least: int = LEAST,
) -> list[TaskResult]:
    """Every task with at least `least` valid programs on the platform."""
    head = programs.head(platform)
    valid = programs.valid(head)
    latency = programs.latency[:, head]
    found = []
    for task in tasks:
        mine = valid[programs.task[valid] == task]
        if len(mine) >= least:
            found.append(judge(programs.tasks[task], scores[mine], latency[mine]))
    return found
