"""Scores of a whole program set, judged task by task on one platform."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from tensorese.evaluation.metrics import TaskResult, judge
from tensorese.features.programs import ProgramSet

LEAST = 5
"""Programs of a task from which a ranking of it is judged."""
NEAR_BEST = 0.9


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
    thinned: npt.NDArray[np.int64] = index[(ratio < NEAR_BEST) | (ratio == 1.0) | lucky]
    return thinned


def judge_scores(
    programs: ProgramSet,
    platform: str,
    scores: npt.NDArray[np.float64],
    tasks: Sequence[int],
    least: int = LEAST,
    *,
    thin: bool = False,
) -> list[TaskResult]:
    """Every task with at least `least` judged programs; `scores[k]` belongs to program `k`."""
    latency = programs.latency[:, programs.head(platform)]
    index = judged_index(programs, platform, tasks, thin=thin)
    results = []
    for task in tasks:
        mine = index[programs.task[index] == task]
        if len(mine) >= least:
            results.append(judge(programs.tasks[task], scores[mine], latency[mine]))
    return results
