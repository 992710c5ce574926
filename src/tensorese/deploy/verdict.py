"""Whether two systems computed the same: one number an output, and a tolerance with a reason."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_ROOM = 8.0
_MOST = 0.0075  # depth would excuse anything in half precision: one per cent is always refused
_OF_ONE = 4 * 2.0**-24  # by which sigmoids of other systems err where they are nearly zero
_OF_SOURCE = 1.5  # times what the source itself errs in half precision


def tolerance(dtype: str, *, kernels: int, reduction: int) -> float:
    """The largest error allowed, as a share of an output's largest value.

    Each sum of `reduction` rounded terms errs by about its square root in units of the last
    place, and the errors of `kernels` kernels in a row add up like their square root.
    """
    if not dtype.startswith(("float", "bfloat")):
        return 0.0
    unit = 2.0**-8 if dtype == "bfloat16" else float(np.finfo(dtype).eps)
    return min(_MOST, _ROOM * unit * math.sqrt(max(kernels, 1) * max(reduction, 1)))


def half_tolerance(limit: float, source_error: float) -> float:
    """`limit`, or more where the source, against itself in float32, is off by as much already."""
    return max(limit, _OF_SOURCE * source_error) if math.isfinite(source_error) else limit


@dataclass(frozen=True, kw_only=True)
class NetworkVerdict:
    """How far `error` is from `tolerance`, with the worst output named in `note`."""

    passed: bool
    error: float
    tolerance: float
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"passed": self.passed, "max_error": self.error, "tolerance": self.tolerance}


def compare(
    got: Sequence[Array], want: Sequence[Array], allowed: Sequence[float]
) -> NetworkVerdict:
    """Output by output; the worst decides."""
    if len(got) != len(want):
        note = f"{len(got)} outputs, but {len(want)} were expected"
        return NetworkVerdict(passed=False, error=math.inf, tolerance=0.0, note=note)
    worst = NetworkVerdict(passed=True, error=0.0, tolerance=max(allowed, default=0.0))
    for index, (a, b, limit) in enumerate(zip(got, want, allowed, strict=True)):
        error = difference(a, b)
        if not error <= limit:
            note = f"output {index} differs by {error:.3g} of its largest value"
            return NetworkVerdict(passed=False, error=error, tolerance=limit, note=note)
        if error > worst.error:
            worst = NetworkVerdict(passed=True, error=error, tolerance=limit)
    return worst


def rival_limits(got: Sequence[Array], allowed: Sequence[float]) -> list[float]:
    """`allowed`, or more for probabilities: for systems that are timed, not judged by.

    onnxruntime's sigmoid errs by 1.4e-7 wherever it is, which is much of a small probability.
    """
    largest = [float(np.abs(one).max(initial=0)) if _is_probability(one) else 0.0 for one in got]
    return [
        max(limit, _OF_ONE / most) if most else limit
        for limit, most in zip(allowed, largest, strict=True)
    ]


def _is_probability(array: Array) -> bool:
    return array.dtype == np.float32 and bool(((array >= 0) & (array <= 1)).all())


def difference(got: Array, want: Array) -> float:
    """The largest difference over the largest expected value; infinite for another shape or NaN."""
    if got.shape != want.shape:
        return math.inf
    if want.size == 0:
        return 0.0
    if got.dtype.kind in "biu":
        return 0.0 if np.array_equal(got, want) else 1.0
    x, y = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(y)
    same_elsewhere = np.array_equal(x[~finite], y[~finite], equal_nan=True)
    if not same_elsewhere or not np.isfinite(x[finite]).all():
        return math.inf
    if not finite.any():
        return 0.0
    scale = float(np.abs(y[finite]).max()) or 1.0
    return float(np.abs(x[finite] - y[finite]).max()) / scale
