"""Trees that are grown beside a model's networks, from the same physical features and labels.

Boosted trees err otherwise than networks do, and cost seconds. LightGBM grows them (extra
`baselines`); whoever loads the model needs it no more.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorese.evaluation.trees import (
    OCTAVES,
    Scale,
    Setting,
    fit_rows,
    fit_tree,
    in_octaves,
    on_scale,
)
from tensorese.features.programs import Encoded, ProgramSet
from tensorese.models.trees import Forest, from_lightgbm, mean_of, sum_of, with_known
from tensorese.training.labels import is_label, task_best, task_level
from tensorese.training.physics import only

SETTING: Setting = {
    "num_leaves": 31,
    "max_depth": 8,
    "learning_rate": 0.08,
    "feature_fraction": 0.5,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "min_data_in_leaf": 100,
    "max_bin": 127,
}
"""Shallow and few, so that they are walked fast."""
BOTH: tuple[Scale, ...] = ("share", "octaves")


def can_grow() -> bool:
    return importlib.util.find_spec("lightgbm") is not None


def grow_trees(
    programs: ProgramSet, encoded: Encoded, tasks: Sequence[int], rounds: int, seed: int
) -> dict[str, Forest]:
    """From the physical features at the front of a program's values; see `grow_on`."""
    features = encoded.values[:, : encoded.templates[0].n_physics]
    return grow_on(features, programs, tasks, rounds, {"seed": seed})


def grow_on(
    features: npt.NDArray[np.float32],
    programs: ProgramSet,
    tasks: Sequence[int],
    rounds: int,
    more: Setting,
    scales: Sequence[Scale] = ("share",),
) -> dict[str, Forest]:
    """By platform; none for a platform without a valid program in these tasks."""
    found = {}
    for platform in programs.platforms:
        mine = only(programs, platform)
        if set(mine.task[mine.valid(0)].tolist()) & set(tasks):
            setting = {**SETTING, **more}
            found[platform] = grow_forest(features, mine, tasks, rounds, setting, scales)
    return found


def grow_shared(
    features: npt.NDArray[np.float32],
    programs: ProgramSet,
    tasks: Sequence[int],
    rounds: int,
    setting: Setting,
    scales: Sequence[Scale] = ("share",),
) -> dict[str, Forest]:
    """One boosting over the labels of all platforms, then by platform what is left of it.

    A column tells whose label it is: trees split by it where platforms differ, and learn from all
    of them where they do not.
    """
    marks = np.eye(len(programs.platforms), dtype=np.float32)
    row, column, labels = labels_of(programs, tasks, scales)
    given = np.concatenate([features[row], marks[column]], axis=1)
    grown = [fit_rows("lightgbm", setting, given, label, rounds) for label in labels]
    whole = mean_of([from_lightgbm(tree) for tree in grown])
    return {
        platform: with_known(whole, dict(enumerate(marks[k].tolist(), features.shape[1])))
        for k, platform in enumerate(programs.platforms)
    }


def labels_of(
    programs: ProgramSet, tasks: Sequence[int], scales: Sequence[Scale]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], list[npt.NDArray[np.float32]]]:
    """Program and platform of every label in these tasks, and the labels on each of the scales."""
    row, column, share = shares_of(programs, tasks)
    found = []
    for scale in scales:
        if scale != "centred":
            found.append(on_scale(share, row, scale))
            continue
        octaves = np.log2(share.astype(np.float64)) / OCTAVES
        octaves -= task_level(programs.task, row, column, octaves)
        found.append(np.clip(0.5 + octaves, 0.0, 1.0).astype(np.float32))
    return row, column, found


def shares_of(
    programs: ProgramSet, tasks: Sequence[int]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Program, platform and the best's share of its time, of every label in these tasks."""
    best = task_best(programs, tasks)
    known = np.isin(programs.task, np.asarray(tasks, dtype=np.int64))
    row, column = np.nonzero(is_label(programs.latency) & known[:, None])
    share = best[programs.task[row], column] / programs.latency[row, column]
    return row, column, share.astype(np.float32)


def grow_forest(
    features: npt.NDArray[np.float32],
    programs: ProgramSet,
    tasks: Sequence[int],
    rounds: int,
    setting: Setting,
    scales: Sequence[Scale] = ("share",),
) -> Forest:
    """As many trees of each of the scales, of the first platform's labels.

    Those of speed tell the best apart, those of its logarithm the bad from the worse.
    """
    grown = [
        fit_tree("lightgbm", setting, features, programs, tasks, rounds, scale) for scale in scales
    ]
    return mean_of([from_lightgbm(tree) for tree in grown])


def grow_taught(
    features: npt.NDArray[np.float32],
    index: npt.NDArray[Any],
    labels: npt.NDArray[np.float32],
    rounds: int,
    setting: Setting,
    known: Forest,
) -> Forest:
    """Trees of other platforms with more that say what they get wrong on this one.

    What carries over need not be learnt again from few labels, those of the programs `index`, on
    the mean of the scales that `known` was grown on; or see `levelled`.
    """
    wrong = labels - known.predict(features[index])
    more = fit_rows("lightgbm", setting, features[index], wrong.astype(np.float32), rounds)
    return sum_of([known, from_lightgbm(more)])


def levelled(
    share: npt.NDArray[np.float32], task: npt.NDArray[Any], said: npt.NDArray[Any]
) -> npt.NDArray[np.float32]:
    """Labels whose mean over each task is that of what is `said`, on whatever scales it is: what a
    task's programs have in common is all that scales differ by, and orders none of them."""
    labels = (share + in_octaves(share)) / 2
    off = np.bincount(task, weights=said - labels) / np.maximum(np.bincount(task), 1)
    return np.asarray(labels + off[task], dtype=np.float32)
