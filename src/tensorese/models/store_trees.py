"""Boosted trees on lowered programs, run by numpy: `xgboost` and `lightgbm`, by who grew them.

Either the trees see a program as one row, its stores put together, and give a score that was
learnt by ranking; or they see every store, and a program's score is the sum over its stores
(`pack-sum`, MetaSchedule's model), the best's share of its time.
Shape legend: N programs, R rows of all programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self, TypeAlias, get_args

import numpy as np

from tensorese.arrays import Floats32
from tensorese.features.base import Ragged, feature_set
from tensorese.models.base import LOWEST, Model, ModelError, Tensors, register
from tensorese.models.trees import (
    CERTAIN,
    SLOWEST,
    Forest,
    forests_of_tensors,
    tensors_of_forests,
)

Objective: TypeAlias = Literal["rank", "pack-sum"]


def program_rows(ragged: Ragged) -> Floats32:
    """`[N, columns]`: the largest and the mean of its stores, how many, and the coarse vector."""
    has = ragged.counts > 0
    shape = (len(ragged), ragged.values.shape[1])
    most, mean = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    starts = (np.cumsum(ragged.counts) - ragged.counts)[has]
    if len(starts):
        most[has] = np.maximum.reduceat(ragged.values, starts)
        mean[has] = np.add.reduceat(ragged.values, starts) / ragged.counts[has, None]
    counts = ragged.counts[:, None].astype(np.float32)
    return np.concatenate([most, mean, counts, ragged.coarse], axis=1)


def store_rows(ragged: Ragged) -> Floats32:
    """`[R, columns]`: every store, with its program's coarse vector."""
    return np.concatenate([ragged.values, ragged.coarse[ragged.owner]], axis=1)


class StoreTrees(Model):
    def __init__(self, objective: Objective, forests: Mapping[str, Forest]) -> None:
        if objective not in get_args(Objective):
            raise ModelError(
                f"an objective is one of {', '.join(get_args(Objective))}, but got {objective!r}; "
                "restore the folder"
            )
        self.needs = feature_set("lowered")
        self.objective = objective
        self.forests = dict(forests)
        self.platforms = tuple(forests)

    def opinions(self, inputs: Ragged, platform: str) -> Floats32:
        """`[N, 1]`."""
        self.head_index(platform)
        forest = self.forests[platform]
        if self.objective == "rank":
            scores = forest.predict(program_rows(inputs))
        else:
            each = forest.predict(store_rows(inputs))
            share = np.bincount(inputs.owner, weights=each, minlength=len(inputs))
            share = np.clip(share, SLOWEST, CERTAIN)
            scores = np.log(share / (1 - share))
        return np.where(inputs.counts > 0, scores, LOWEST).astype(np.float32)[:, None]

    def section(self) -> dict[str, Any]:
        return {"objective": self.objective}

    def tensors(self, *, half: bool) -> Tensors:
        return tensors_of_forests(self.forests)

    @classmethod
    def build(
        cls, platforms: tuple[str, ...], section: Mapping[str, Any], tensors: Tensors
    ) -> Self:
        return cls(section["objective"], forests_of_tensors(platforms, tensors))


@register
class XGBoost(StoreTrees):
    kind: ClassVar[str] = "xgboost"


@register
class LightGBM(StoreTrees):
    kind: ClassVar[str] = "lightgbm"
