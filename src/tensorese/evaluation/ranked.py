"""Rankings of program sets judged; numpy alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tensorese.evaluation.metrics import TaskResult, judge
from tensorese.features.base import physics_rows as features_of
from tensorese.features.programs import ProgramSet

__all__ = ["LEAST", "features_of", "judge_scores"]

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
