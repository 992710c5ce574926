"""What is learnt from measured times: the best and the mean of a task, labels on three scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Floats32, Floats64
from tensorese.features.programs import ProgramSet


def is_label(latency: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    return np.asarray(np.isfinite(latency) & (latency > 0))


def task_best(programs: ProgramSet, tasks: Sequence[int]) -> Floats64:
    """`[tasks, platforms]`: time of the best, infinite without a label in these tasks.

    The best of three labels is seldom the best there is: where a platform has less than half as
    many labels of a task as another, its best is estimated from the others' shares of its programs.
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
    guessed = few[task, column] & (seen[row] > 0)
    guess = time[guessed] * others[row[guessed]]  # of the best's time, by each program of its own
    likely_best = _geometric_mean(guess, (task[guessed], column[guessed]), shape)
    return np.asarray(np.minimum(best, likely_best))


def _geometric_mean(values: Floats64, where: tuple[Any, Any], shape: tuple[int, int]) -> Floats64:
    """Of the values that fall on each cell; infinite where none does."""
    total, count = np.zeros(shape), np.zeros(shape)
    np.add.at(total, where, np.log(values))
    np.add.at(count, where, 1)
    return np.asarray(np.where(count > 0, np.exp(total / np.maximum(count, 1)), np.inf))


ROUNDS = 20
"""Of fitting programs and levels in turn, until a label moves by thousandths of an octave."""


def task_level(
    task: npt.NDArray[Any], row: npt.NDArray[Any], column: npt.NDArray[Any], octaves: Floats64
) -> Floats64:
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


def only(programs: ProgramSet, platform: str) -> ProgramSet:
    """The same programs with one platform's labels."""
    head = programs.head(platform)
    return replace(
        programs,
        platforms=(platform,),
        latency=programs.latency[:, [head]],
        failed=programs.failed[:, [head]],
    )


OCTAVES = 6.0
"""A program 2 ** 6 times slower than its task's best is worth nothing on a logarithmic scale."""


Scale: TypeAlias = Literal["share", "octaves", "centred"]
"""What labels are: the task's best over a program's time, the logarithm of that, or the logarithm
of the time beside its mean over the task's programs."""


def tree_labels(
    programs: ProgramSet, tasks: Sequence[int], scale: Scale = "share"
) -> tuple[npt.NDArray[Any], Floats32]:
    """Valid programs of the tasks on the first platform, and their labels, all from 0 to 1."""
    index = programs.valid(0)
    index = index[np.isin(programs.task[index], np.asarray(tasks, dtype=np.int64))]
    latency = programs.latency[index, 0]
    best = np.full(len(programs.tasks), np.inf)
    np.minimum.at(best, programs.task[index], latency)
    share = (best[programs.task[index]] / latency).astype(np.float32)
    return index, on_scale(share, programs.task[index], scale)


def on_scale(share: Floats32, group: npt.NDArray[Any], scale: Scale) -> Floats32:
    """Shares of the best's speed as labels; `group` numbers the task, or task and platform."""
    if scale == "share":
        return share
    return in_octaves(share) if scale == "octaves" else beside_mean(share, group)


def in_octaves(share: Floats32) -> Floats32:
    """A share of the best's speed on a logarithmic scale, from 0 to 1."""
    return np.asarray(np.maximum(1.0 + np.log2(share) / OCTAVES, 0.0), dtype=np.float32)


def beside_mean(share: Floats32, group: npt.NDArray[Any]) -> Floats32:
    """A half for a program as fast as its group's geometric mean; as many octaves reach 0 and 1.

    A task's best is one measurement, and how far it is ahead of the others says nothing of them.
    """
    octaves = np.log2(share.astype(np.float64)) / OCTAVES
    count = np.maximum(np.bincount(group), 1)
    mean = np.bincount(group, weights=octaves) / count
    return np.asarray(np.clip(0.5 + octaves - mean[group], 0.0, 1.0), dtype=np.float32)
