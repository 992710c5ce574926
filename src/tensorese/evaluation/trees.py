"""LightGBM and XGBoost on the features a model sees: the peers every table names (extras)."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorese.features.programs import ProgramSet

Floats = npt.NDArray[np.float32]
Setting = Mapping[str, float]

ROUNDS = 300
TREES: dict[str, tuple[Setting, ...]] = {
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
"""Settings that are tried; the best on validation tasks counts."""


def installed_trees() -> list[str]:
    return [kind for kind in TREES if importlib.util.find_spec(kind) is not None]


OCTAVES = 6.0
"""A program 2 ** 6 times slower than its task's best is worth nothing on a logarithmic scale."""


Scale: TypeAlias = Literal["share", "octaves", "centred"]
"""What labels are: the task's best over a program's time, the logarithm of that, or the logarithm
of the time beside its mean over the task's programs."""


def tree_labels(
    programs: ProgramSet, tasks: Sequence[int], scale: Scale = "share"
) -> tuple[npt.NDArray[Any], Floats]:
    """Valid programs of the tasks on the first platform, and their labels, all from 0 to 1."""
    index = programs.valid(0)
    index = index[np.isin(programs.task[index], np.asarray(tasks, dtype=np.int64))]
    latency = programs.latency[index, 0]
    best = np.full(len(programs.tasks), np.inf)
    np.minimum.at(best, programs.task[index], latency)
    share = (best[programs.task[index]] / latency).astype(np.float32)
    return index, on_scale(share, programs.task[index], scale)


def on_scale(share: Floats, group: npt.NDArray[Any], scale: Scale) -> Floats:
    """Shares of the best's speed as labels; `group` numbers the task, or task and platform."""
    if scale == "share":
        return share
    return in_octaves(share) if scale == "octaves" else beside_mean(share, group)


def in_octaves(share: Floats) -> Floats:
    """A share of the best's speed on a logarithmic scale, from 0 to 1."""
    return np.asarray(np.maximum(1.0 + np.log2(share) / OCTAVES, 0.0), dtype=np.float32)


def beside_mean(share: Floats, group: npt.NDArray[Any]) -> Floats:
    """A half for a program as fast as its group's geometric mean; as many octaves reach 0 and 1.

    A task's best is one measurement, and how far it is ahead of the others says nothing of them.
    """
    octaves = np.log2(share.astype(np.float64)) / OCTAVES
    count = np.maximum(np.bincount(group), 1)
    mean = np.bincount(group, weights=octaves) / count
    return np.asarray(np.clip(0.5 + octaves - mean[group], 0.0, 1.0), dtype=np.float32)


def fit_tree(
    kind: str,
    setting: Setting,
    features: Floats,
    programs: ProgramSet,
    tasks: Sequence[int],
    rounds: int = ROUNDS,
    scale: Scale = "share",
) -> Any:
    index, labels = tree_labels(programs, tasks, scale)
    return fit_rows(kind, setting, features[index], labels, rounds)


def fit_rows(
    kind: str, setting: Setting, features: Floats, labels: Floats, rounds: int = ROUNDS
) -> Any:
    if kind == "lightgbm":
        import lightgbm

        shared = {"objective": "regression", "learning_rate": 0.05, "verbose": -1, "seed": 0}
        settings = {**shared, "feature_fraction": 0.5, **setting}
        return lightgbm.train(settings, lightgbm.Dataset(features, labels), rounds)
    import xgboost

    shared = {"objective": "reg:squarederror", "eta": 0.05, "colsample_bytree": 0.5, "seed": 0}
    return xgboost.train({**shared, **setting}, xgboost.DMatrix(features, labels), rounds)


def score_tree(kind: str, tree: Any, features: Floats) -> npt.NDArray[np.float64]:
    if kind == "lightgbm":
        return np.asarray(tree.predict(features), dtype=np.float64)
    import xgboost

    return np.asarray(tree.predict(xgboost.DMatrix(features)), dtype=np.float64)
