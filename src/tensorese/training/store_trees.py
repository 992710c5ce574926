"""Trees grown from lowered programs: ranked task by task, or summed over stores as MetaSchedule's.

XGBoost and LightGBM are an extra (`baselines`); whoever loads what they grew needs neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Floats32, Floats64, Ints
from tensorese.features.base import Ragged
from tensorese.features.programs import ProgramSet
from tensorese.models.store_trees import Objective, program_rows, store_rows
from tensorese.models.trees import Forest, from_lightgbm, from_xgboost
from tensorese.training.labels import tree_labels

SETTINGS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "xgboost": (
        {"max_depth": 10, "gamma": 0.001, "min_child_weight": 0, "eta": 0.2},  # MetaSchedule's own
        {"max_depth": 6, "gamma": 0.001, "min_child_weight": 5, "eta": 0.1},
        {"max_depth": 8, "gamma": 0.0, "min_child_weight": 20, "eta": 0.1, "colsample_bytree": 0.5},
    ),
    "lightgbm": (
        {"num_leaves": 31, "learning_rate": 0.1, "min_data_in_leaf": 20},
        {"num_leaves": 63, "learning_rate": 0.1, "min_data_in_leaf": 20, "feature_fraction": 0.5},
        {"num_leaves": 255, "learning_rate": 0.1, "min_data_in_leaf": 20, "feature_fraction": 0.5},
    ),
}
_GRADES = 31
"""Of speed, for LightGBM, which ranks by whole numbers."""


def grow(
    kind: str,
    objective: Objective,
    programs: ProgramSet,
    tasks: Sequence[int],
    setting: Mapping[str, Any],
    rounds: int,
    seed: int = 0,
) -> Forest:
    """From the first platform's labels of these tasks; `programs` were lowered."""
    assert programs.lowered is not None
    index, labels = tree_labels(programs, tasks)
    has = programs.lowered.counts[index] > 0
    index, labels = index[has], labels[has]
    order = np.argsort(programs.task[index], kind="stable")
    index, labels = index[order], labels[order]
    chosen = programs.lowered.take(index)
    if objective == "rank":
        booster = _ranked(kind, chosen, labels, programs.task[index], setting, rounds, seed)
    else:
        booster = _summed(kind, chosen, labels.astype(np.float64), setting, rounds, seed)
    return from_lightgbm(booster) if kind == "lightgbm" else from_xgboost(booster)


def _ranked(
    kind: str,
    ragged: Ragged,
    labels: Floats32,
    task: Ints,
    setting: Mapping[str, Any],
    rounds: int,
    seed: int,
) -> Any:
    """LambdaRank among the programs of a task, which lie together."""
    sizes = np.unique(task, return_counts=True)[1]
    x = program_rows(ragged)
    if kind == "lightgbm":
        import lightgbm

        gains = [2 ** (k / (_GRADES - 1)) - 1 for k in range(_GRADES)]
        data = lightgbm.Dataset(x, np.rint(labels * (_GRADES - 1)), group=sizes)
        rank = {"objective": "lambdarank", "label_gain": gains, "verbose": -1, "seed": seed}
        return lightgbm.train({**rank, **setting}, data, rounds)
    import xgboost

    rank = {"objective": "rank:ndcg", "ndcg_exp_gain": False, "base_score": 0.0, "seed": seed}
    data = xgboost.DMatrix(x, labels)
    data.set_group(sizes)
    return xgboost.train({**rank, **setting}, data, rounds)


def _summed(
    kind: str,
    ragged: Ragged,
    labels: Floats64,
    setting: Mapping[str, Any],
    rounds: int,
    seed: int,
) -> Any:
    """Squared error of the sum over a program's stores, weighed by the label as MetaSchedule does.

    A booster sees stores; the gradient of a program's error is handed to each of its stores.
    """
    x, owner = store_rows(ragged), ragged.owner

    def objective(said: npt.NDArray[Any], _: Any) -> tuple[Any, Any]:
        total = np.bincount(owner, weights=said, minlength=len(labels))
        return ((total - labels) * labels)[owner], labels[owner]

    if kind == "lightgbm":
        import lightgbm

        params = {"verbose": -1, "objective": objective, "seed": seed, **setting}
        return lightgbm.train(params, lightgbm.Dataset(x, np.zeros(len(x))), rounds)
    import xgboost

    data = xgboost.DMatrix(x, np.zeros(len(x)))
    return xgboost.train({"base_score": 0.0, "seed": seed, **setting}, data, rounds, obj=objective)
