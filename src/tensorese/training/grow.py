"""Trees that are grown beside a model's networks, from the same physical features and labels.

Boosted trees err otherwise than networks do, and cost seconds. LightGBM grows them (extra
`baselines`); whoever loads the model needs it no more.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tensorese.evaluation.trees import Setting, fit_rows, fit_tree, tree_labels
from tensorese.models.forest import Forest, from_lightgbm, mean_of, with_known
from tensorese.models.programs import Encoded, ProgramSet
from tensorese.training.small import only

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
    *,
    both: bool = False,
) -> dict[str, Forest]:
    """By platform; none for a platform without a valid program in these tasks."""
    found = {}
    for platform in programs.platforms:
        mine = only(programs, platform)
        if set(mine.task[mine.valid(0)].tolist()) & set(tasks):
            setting = {**SETTING, **more}
            found[platform] = grow_forest(features, mine, tasks, rounds, setting, both=both)
    return found


def grow_shared(
    features: npt.NDArray[np.float32],
    programs: ProgramSet,
    tasks: Sequence[int],
    rounds: int,
    setting: Setting,
    *,
    both: bool = False,
) -> dict[str, Forest]:
    """One boosting over the labels of all platforms, then by platform what is left of it.

    A column tells whose label it is: trees split by it where platforms differ, and learn from all
    of them where they do not.
    """
    platforms = programs.platforms
    marks = np.eye(len(platforms), dtype=np.float32)
    first = features.shape[1]
    grown = []
    for octaves in (False, True) if both else (False,):
        rows, labels = [], []
        for k, platform in enumerate(platforms):
            index, mine = tree_labels(only(programs, platform), tasks, octaves=octaves)
            told = np.broadcast_to(marks[k], (len(index), len(platforms)))
            rows.append(np.concatenate([features[index], told], axis=1))
            labels.append(mine)
        tree = fit_rows("lightgbm", setting, np.concatenate(rows), np.concatenate(labels), rounds)
        grown.append(from_lightgbm(tree))
    whole = mean_of(grown)
    return {
        platform: with_known(whole, dict(enumerate(marks[k].tolist(), first)))
        for k, platform in enumerate(platforms)
    }


def grow_forest(
    features: npt.NDArray[np.float32],
    programs: ProgramSet,
    tasks: Sequence[int],
    rounds: int,
    setting: Setting,
    *,
    both: bool = False,
) -> Forest:
    """Of the first platform's speeds; with `both` as many trees again of their logarithm.

    Those of speed tell the best apart, those of its logarithm the bad from the worse.
    """
    grown = [
        fit_tree("lightgbm", setting, features, programs, tasks, rounds, octaves=octaves)
        for octaves in ((False, True) if both else (False,))
    ]
    return mean_of([from_lightgbm(tree) for tree in grown])
