"""LightGBM and XGBoost on the features a model sees: the peers every table names (extras)."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorese.models.programs import ProgramSet

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


def tree_labels(
    programs: ProgramSet, tasks: Sequence[int], *, octaves: bool = False
) -> tuple[npt.NDArray[Any], Floats]:
    """Valid programs of the tasks on the first platform, and their task's best over their time.

    With `octaves` on a logarithmic scale, also from 0 to 1.
    """
    index = programs.valid(0)
    index = index[np.isin(programs.task[index], np.asarray(tasks, dtype=np.int64))]
    latency = programs.latency[index, 0]
    best = np.full(len(programs.tasks), np.inf)
    np.minimum.at(best, programs.task[index], latency)
    share = (best[programs.task[index]] / latency).astype(np.float32)
    return index, in_octaves(share) if octaves else share


def in_octaves(share: Floats) -> Floats:
    """A share of the best's speed on a logarithmic scale, from 0 to 1."""
    return np.asarray(np.maximum(1.0 + np.log2(share) / OCTAVES, 0.0), dtype=np.float32)


def fit_tree(
    kind: str,
    setting: Setting,
    features: Floats,
    programs: ProgramSet,
    tasks: Sequence[int],
    rounds: int = ROUNDS,
    *,
    octaves: bool = False,
) -> Any:
    index, labels = tree_labels(programs, tasks, octaves=octaves)
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
