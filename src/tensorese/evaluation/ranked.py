"""Program sets as rows of physical features, and rankings of them judged; numpy alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tensorese.evaluation.metrics import TaskResult, judge
from tensorese.features.physics import Machine, feature_names
from tensorese.features.programs import ProgramSet
from tensorese.features.reading import Reading

LEAST = 5
"""Programs of a task from which a ranking of it is judged."""


def features_of(programs: ProgramSet, machine: Machine) -> npt.NDArray[np.float32]:
    """`[n, features]` of every program."""
    values = np.zeros((len(programs), len(feature_names(machine))), dtype=np.float32)
    for pair, members, decisions in zip(
        programs.pairs, programs.members, programs.decisions, strict=True
    ):
        sketch = pair.sketch
        reading = Reading(machine, sketch.dialect, sketch.body, sketch.slots, pair.context)
        values[members] = reading.features(decisions)
    return values


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
