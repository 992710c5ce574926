"""How physical features are written: sizes as logarithms, a share of 1 as 4."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]

SHARE = 4.0
"""A share of 1 is written as 4, of the order of the logarithms beside it."""


def log2(x: Any) -> Floats:
    return np.asarray(np.log2(np.maximum(x, 1e-3)))
