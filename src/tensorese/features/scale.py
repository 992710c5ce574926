"""How physical features are written: sizes as logarithms, a share of 1 as 4."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorese.arrays import Floats64

SHARE = 4.0
"""A share of 1 is written as 4, of the order of the logarithms beside it."""


def log2(x: Any) -> Floats64:
    return np.asarray(np.log2(np.maximum(x, 1e-3)))
