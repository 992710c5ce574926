"""How fast the best program of a task is, and the mean one: what labels are measured against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorese.features.programs import ProgramSet

Floats = npt.NDArray[np.float64]


def is_label(latency: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    return np.asarray(np.isfinite(latency) & (latency > 0))


def task_best(programs: ProgramSet, tasks: Sequence[int]) -> Floats:
    """`[tasks, platforms]`: time of the best, infinite without a label in these tasks.

    The best of three labels is seldom the best there is: where a platform has less than half as
    many labels of a task as another, the others' shares of its programs say how fast it might be.
    """
    known = np.isin(programs.task, np.asarray(tasks, dtype=np.int64))
    latency = np.where(known[:, None], programs.latency, np.nan).astype(np.float64)
    row, column = np.nonzero(is_label(latency))
    time, task = latency[row, column], programs.task[row]
    shape = (len(programs.tasks), latency.shape[1])
    best, count = np.full(shape, np.inf), np.zeros(shape)
    np.minimum.at(best, (task, column), time)
    np.add.at(count, (task, column), 1)
    few = count < count.max(1, keepdims=True) / 2
    full = np.where(few[programs.task], np.nan, best[programs.task] / latency)
    seen = np.isfinite(full).sum(1)
    others = np.nansum(full, axis=1) / np.maximum(seen, 1)
    told = few[task, column] & (seen[row] > 0)
    guess = time[told] * others[row[told]]  # of the best's time, by each program of its own
    told_best = _geometric_mean(guess, (task[told], column[told]), shape)
    return np.asarray(np.minimum(best, told_best))


def _geometric_mean(values: Floats, where: tuple[Any, Any], shape: tuple[int, int]) -> Floats:
    """Of the values that fall on each cell; infinite where none does."""
    total, count = np.zeros(shape), np.zeros(shape)
    np.add.at(total, where, np.log(values))
    np.add.at(count, where, 1)
    return np.asarray(np.where(count > 0, np.exp(total / np.maximum(count, 1)), np.inf))


ROUNDS = 20
"""Of fitting programs and levels in turn, until a label moves by thousandths of an octave."""


def task_level(
    task: npt.NDArray[Any], row: npt.NDArray[Any], column: npt.NDArray[Any], octaves: Floats
) -> Floats:
    """By label (program `row`, platform `column`): what the task's mean program has there.

    Platforms have measured some of a task's programs each, one of them perhaps three. An octave is
    the program's own, the same everywhere, and the level of its task on the platform: programs are
    compared with all of their task, not with those that happened to be measured beside them.
    """
    n_tasks, platforms = int(task.max()) + 1, int(column.max()) + 1
    group = task[row] * platforms + column
    size = np.maximum(np.bincount(group, minlength=n_tasks * platforms), 1)
    labels = np.maximum(np.bincount(row, minlength=len(task)), 1)
    seen = np.bincount(row, minlength=len(task)) > 0
    programs = np.maximum(np.bincount(task[seen], minlength=n_tasks), 1)
    level = np.bincount(group, octaves, len(size)) / size
    for _ in range(ROUNDS):
        own = np.bincount(row, octaves - level[group], len(task)) / labels
        own -= (np.bincount(task[seen], own[seen], n_tasks) / programs)[task]
        level = np.bincount(group, octaves - own[row], len(size)) / size
    return np.asarray(level[group])
