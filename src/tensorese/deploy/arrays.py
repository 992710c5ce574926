"""Lists of arrays in files, between the processes of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_BITS = ":bfloat16"  # numpy writes that type as bytes without a name


def store_arrays(path: str | Path, prefix: str, arrays: Sequence[Array]) -> None:
    named: dict[str, Any] = {}
    for i, array in enumerate(arrays):
        if array.dtype.name == "bfloat16":
            named[f"{prefix}{i}{_BITS}"] = array.view(np.int16)
        else:
            named[f"{prefix}{i}"] = array
    np.savez(path, **named)


def stored_arrays(path: str | Path, prefix: str) -> list[Array]:
    with np.load(path, allow_pickle=False) as stored:
        return [_read(stored, f"{prefix}{i}") for i in range(len(stored.files))]


def _read(stored: Any, name: str) -> Array:
    if name in stored.files:
        array: Array = stored[name]
        return array
    import ml_dtypes

    bits: Array = stored[name + _BITS]
    return bits.view(ml_dtypes.bfloat16)
