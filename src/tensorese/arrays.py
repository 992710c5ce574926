"""Names of the array types that every room uses."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats32: TypeAlias = npt.NDArray[np.float32]
Floats64: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
