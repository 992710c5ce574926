"""Models that know the toy task's truth, or its opposite."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from search_support import seconds, task_state
from tensorese.arrays import Floats32
from tensorese.features.base import feature_set
from tensorese.models.base import Model, Section, Tensors
from tensorese.records.nouns import Sketch, Workload


class ToyModel(Model):
    """`sign` 1 says how fast rows are, -1 the opposite; in doublings behind the best."""

    kind: ClassVar[str] = "toy"
    hash = "toytoyto"
    platforms = ("any",)
    needs = feature_set("decisions")

    def __init__(self, sign: float) -> None:
        self.sign = sign
        self.sketches = [space.sketch.id for space in task_state().space.sketches]

    def read(self, workload: Workload, sketch: Sketch, decisions: npt.ArrayLike) -> Floats32:
        which = self.sketches.index(sketch.id) if sketch.id in self.sketches else 0
        rows = np.asarray(decisions, dtype=np.int64).reshape(-1, sketch.n_decisions)
        times = [seconds(which, row) for row in rows.tolist()]
        return np.array(times, dtype=np.float32).reshape(-1, 1)

    def opinions(self, inputs: Any, platform: str) -> Floats32:
        return self.speeds(inputs, platform)

    def speeds(self, inputs: Floats32, platform: str) -> Floats32:
        behind = np.log2(np.maximum(inputs, 1e-9) / 1e-4)
        return np.repeat(-self.sign * behind - 3.0 * (self.sign < 0), 2, axis=1)

    def section(self) -> dict[str, Any]:
        return {"sign": self.sign}

    def tensors(self, *, half: bool) -> Tensors:
        return {}

    @classmethod
    def build(cls, platforms: tuple[str, ...], section: Section, tensors: Tensors) -> Self:
        return cls(section["sign"])


def toy_model(sign: float = 1.0) -> ToyModel:
    return ToyModel(sign)
