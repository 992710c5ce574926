"""Boosted trees grown from hardware features: those beside a model's networks, and the baselines.

Trees err otherwise than networks do, and cost seconds. LightGBM grows them, for the baselines
XGBoost too (extra `baselines`); whoever loads a model needs neither.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Floats32
from tensorese.evaluation.judge import judge_scores
from tensorese.features.base import physics_rows
from tensorese.features.programs import ProgramSet
from tensorese.models.trees import Forest, from_lightgbm, mean_of, sum_of, with_known
from tensorese.training.labels import (
    OCTAVES,
    Scale,
    in_octaves,
    is_label,
    on_scale,
    only,
    task_best,
    task_level,
    tree_labels,
)

Setting = Mapping[str, float]

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
ROUNDS = 300
SETTINGS: dict[str, tuple[Setting, ...]] = {
    "lightgbm": (
        {"num_leaves": 15, "min_data_in_leaf": 20},
        {"num_leaves": 31, "min_data_in_leaf": 20},
        {"num_leaves": 63, "min_data_in_leaf": 50},
    ),
    "xgboost": (
        {"max_depth": 4, "min_child_weight": 5},
        {"max_depth": 6, "min_child_weight": 5},
        {"max_depth": 8, "min_child_weight": 20},
    ),
}
"""Of the baselines; the best on validation tasks counts."""


VALIDATION = 6
"""One training task in so many chooses the baselines' setting."""


def installed_trees() -> list[str]:
    return [kind for kind in SETTINGS if importlib.util.find_spec(kind) is not None]


def can_grow() -> bool:
    return importlib.util.find_spec("lightgbm") is not None


def grow_on(
    features: Floats32,
    programs: ProgramSet,
    tasks: Sequence[int],
    rounds: int,
    more: Setting,
    scales: Sequence[Scale] = ("share",),
) -> dict[str, Forest]:
    """By platform; none for a platform without a valid program in these tasks."""
    forests = {}
    for platform in programs.platforms:
        mine = only(programs, platform)
        if set(mine.task[mine.valid(0)].tolist()) & set(tasks):
            setting = {**SETTING, **more}
            forests[platform] = grow_forest(features, mine, tasks, rounds, setting, scales)
    return forests


def grow_shared(
    features: Floats32,
    programs: ProgramSet,
    tasks: Sequence[int],
    rounds: int,
    setting: Setting,
    scales: Sequence[Scale] = ("share",),
) -> dict[str, Forest]:
    """One boosting over the labels of all platforms, then by platform what is left of it.

    A column marks whose label it is: trees split by it where platforms differ, and learn from all
    of them where they do not.
    """
    marks = np.eye(len(programs.platforms), dtype=np.float32)
    row, column, labels = labels_of(programs, tasks, scales)
    inputs = np.concatenate([features[row], marks[column]], axis=1)
    grown = [fit_rows("lightgbm", setting, inputs, label, rounds) for label in labels]
    whole = mean_of([from_lightgbm(tree) for tree in grown])
    return {
        platform: with_known(whole, dict(enumerate(marks[k].tolist(), features.shape[1])))
        for k, platform in enumerate(programs.platforms)
    }


def labels_of(
    programs: ProgramSet, tasks: Sequence[int], scales: Sequence[Scale]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], list[Floats32]]:
    """Program and platform of every label in these tasks, and the labels on each of the scales."""
    row, column, share = shares_of(programs, tasks)
    labels = []
    for scale in scales:
        if scale != "centred":
            labels.append(on_scale(share, row, scale))
            continue
        octaves = np.log2(share.astype(np.float64)) / OCTAVES
        octaves -= task_level(programs.task, row, column, octaves)
        labels.append(np.clip(0.5 + octaves, 0.0, 1.0).astype(np.float32))
    return row, column, labels


def shares_of(
    programs: ProgramSet, tasks: Sequence[int]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Floats32]:
    """Program, platform and the best's share of its time, of every label in these tasks."""
    best = task_best(programs, tasks)
    known = np.isin(programs.task, np.asarray(tasks, dtype=np.int64))
    row, column = np.nonzero(is_label(programs.latency) & known[:, None])
    share = best[programs.task[row], column] / programs.latency[row, column]
    return row, column, share.astype(np.float32)


def grow_forest(
    features: Floats32,
    programs: ProgramSet,
    tasks: Sequence[int],
    rounds: int,
    setting: Setting,
    scales: Sequence[Scale] = ("share",),
) -> Forest:
    """As many trees of each of the scales, of the first platform's labels.

    Those of speed separate the best, those of its logarithm the bad from the worse.
    """
    grown = [
        fit_tree("lightgbm", setting, features, programs, tasks, rounds, scale) for scale in scales
    ]
    return mean_of([from_lightgbm(tree) for tree in grown])


def grow_corrected(
    features: Floats32,
    index: npt.NDArray[Any],
    labels: Floats32,
    rounds: int,
    setting: Setting,
    known: Forest,
) -> Forest:
    """Trees of other platforms, with more for their error on this one.

    What carries over need not be learnt again from few labels, those of the programs `index`, on
    the mean of the scales that `known` was grown on; or see `levelled`.
    """
    wrong = labels - known.predict(features[index])
    more = fit_rows("lightgbm", setting, features[index], wrong.astype(np.float32), rounds)
    return sum_of([known, from_lightgbm(more)])


def levelled(share: Floats32, task: npt.NDArray[Any], predicted: npt.NDArray[Any]) -> Floats32:
    """Labels whose mean over each task is that of `predicted`, on whatever scale that is: scales
    differ only by what a task's programs have in common, which orders none of them."""
    labels = (share + in_octaves(share)) / 2
    off = np.bincount(task, weights=predicted - labels) / np.maximum(np.bincount(task), 1)
    return np.asarray(labels + off[task], dtype=np.float32)


def fit_tree(
    kind: str,
    setting: Setting,
    features: Floats32,
    programs: ProgramSet,
    tasks: Sequence[int],
    rounds: int = ROUNDS,
    scale: Scale = "share",
) -> Any:
    index, labels = tree_labels(programs, tasks, scale)
    return fit_rows(kind, setting, features[index], labels, rounds)


def fit_rows(
    kind: str, setting: Setting, features: Floats32, labels: Floats32, rounds: int = ROUNDS
) -> Any:
    if kind == "lightgbm":
        import lightgbm

        shared = {"objective": "regression", "learning_rate": 0.05, "verbose": -1, "seed": 0}
        settings = {**shared, "feature_fraction": 0.5, **setting}
        return lightgbm.train(settings, lightgbm.Dataset(features, labels), rounds)
    import xgboost

    shared = {"objective": "reg:squarederror", "eta": 0.05, "colsample_bytree": 0.5, "seed": 0}
    return xgboost.train({**shared, **setting}, xgboost.DMatrix(features, labels), rounds)


def score_tree(kind: str, tree: Any, features: Floats32) -> npt.NDArray[np.float64]:
    if kind == "lightgbm":
        return np.asarray(tree.predict(features), dtype=np.float64)
    import xgboost

    return np.asarray(tree.predict(xgboost.DMatrix(features)), dtype=np.float64)


def baselines(
    train: ProgramSet, test: ProgramSet, platform: str
) -> list[tuple[str, npt.NDArray[np.float64]]]:
    """Scores of the test programs by every installed kind, trained on the training programs'
    hardware features, the setting chosen on training tasks."""
    train = only(train, platform)
    features, test_features = (physics_rows(programs, train.machine) for programs in (train, test))
    validation = list(range(0, len(train.tasks), VALIDATION))
    rest = [k for k in range(len(train.tasks)) if k % VALIDATION]
    rows = []
    for kind in installed_trees():
        marks = []
        for setting in SETTINGS[kind]:
            tree = fit_tree(kind, setting, features, train, rest)
            judged = judge_scores(train, platform, score_tree(kind, tree, features), validation)
            marks.append(float(np.mean([r.ratio(1) + r.ratio(5) for r in judged] or [0.0])))
        best = SETTINGS[kind][int(np.argmax(marks))]
        tree = fit_tree(kind, best, features, train, range(len(train.tasks)))
        rows.append((kind, score_tree(kind, tree, test_features)))
    return rows
