"""What models read of a program set: one reading for all models of the same features."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tensorese.features.base import FeatureSet
from tensorese.features.programs import ProgramSet
from tensorese.models.base import Model


def inputs_of(model: Model, programs: ProgramSet) -> Any:
    """The one place where evaluation gets features; sets of lowered programs come from a cache."""
    return model.read_all(programs)


class Inputs:
    """Of one program set."""

    def __init__(self, programs: ProgramSet) -> None:
        self.programs = programs
        self._read: dict[FeatureSet, Any] = {}

    def scores(self, model: Model, platform: str) -> npt.NDArray[np.float64]:
        """`[n]` by the model's head for `platform`."""
        if model.needs not in self._read:
            self._read[model.needs] = inputs_of(model, self.programs)
        return model.rank(self._read[model.needs], platform).astype(np.float64)
