"""Inputs that are the same everywhere, and how far an output may lie from the reference."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorese.measure.reference.expressions import Array, np_dtype
from tensorese.records.nouns import TensorSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """One output judged. Errors are over finite elements; `first_bad` is an index."""

    passed: bool
    max_abs_error: float = 0.0
    max_rel_error: float = 0.0
    first_bad: tuple[int, ...] | None = None
    note: str = ""


def seeded_inputs(specs: Sequence[TensorSpec], seed: int, *, low: float = -1.0) -> list[Array]:
    """Arguments that depend on the seed, position, shape and dtype only, on any machine.

    Floats are uniform in [low, 1): a float16 sum of products then stays near sqrt(length).
    """
    return [_draw(spec, seed, index, low) for index, spec in enumerate(specs)]


def _draw(spec: TensorSpec, seed: int, index: int, low: float) -> Array:
    mark = zlib.crc32(f"{spec.shape}{spec.dtype}".encode())
    rng = np.random.Generator(np.random.PCG64([seed, index, mark]))
    dtype = np_dtype(spec.dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, spec.shape).astype(dtype)
    if dtype.kind in "iu":
        # Wide integers are mostly indices (take, one-hot): small and never negative.
        least = -8 if dtype.kind == "i" and dtype.itemsize <= 2 else 0
        return rng.integers(least, 8 if least else 4, spec.shape).astype(dtype)
    return rng.uniform(low, 1.0, spec.shape).astype(dtype)


def tolerance(dtype: str, reduction_length: int) -> tuple[float, float]:
    """(rtol, atol) for an output computed in `dtype`; zero for integers and booleans.

    Adding K random terms rounds each partial sum by at most eps/2 of its size; partial sums grow
    like sqrt(k) and rounding errors are independent, so the final error is about
    0.2 * eps * sqrt(K) of the typical result (all-positive sums: the same with 0.17). 2 is ten
    such deviations: over the largest outputs, any order of summation passes. The constant covers
    intrinsics, which compilers approximate to a few ulp in float32 and compute above half types.
    """
    kind = np_dtype(dtype)
    if kind.kind in "iub":
        return 0.0, 0.0
    eps = float(_eps(kind))
    constant = 32.0 if kind.itemsize >= 4 else 4.0
    return eps * (constant + 2.0 * float(np.sqrt(max(reduction_length, 1)))), 4.0 * eps


def _eps(dtype: np.dtype[Any]) -> float:
    if dtype.kind == "f":
        return float(np.finfo(dtype).eps)
    import ml_dtypes

    limits: Any = ml_dtypes.finfo
    return float(limits(dtype).eps)


def compare(got: Array, want: Array, rtol: float, atol: float) -> Verdict:
    """Passes where |got - want| <= atol + rtol * (|want| + rms(want)).

    The rms is there because errors of a sum follow the size of its terms, not of a result that
    happened to cancel. Integers and zero tolerances compare exactly. NaN only equals NaN.
    """
    if got.shape != want.shape or got.dtype != want.dtype:
        note = f"expected {want.dtype}{want.shape}, got {got.dtype}{got.shape}"
        return Verdict(passed=False, max_abs_error=np.inf, max_rel_error=np.inf, note=note)
    a, b = got.astype(np.float64), want.astype(np.float64)
    with np.errstate(all="ignore"):
        error = np.where(a == b, 0.0, np.abs(a - b))
        size = np.abs(np.where(np.isfinite(b), b, 0.0))
        scale = size + (float(np.sqrt(np.mean(size**2))) if size.size else 0.0)
        if want.dtype.kind in "iub":  # on the integers themselves: float64 ends at 2^53
            good = got == want
        else:
            close = np.isfinite(a) & np.isfinite(b) & (error <= atol + rtol * scale)
            good = (a == b) | close | (np.isnan(a) & np.isnan(b))
    return _verdict(good, np.where(np.isfinite(error), error, 0.0), scale, _nan_note(a, b))


def _nan_note(got: Array, want: Array) -> str:
    new, known = int((np.isnan(got) & ~np.isnan(want)).sum()), int(np.isnan(want).sum())
    if new:
        return f"NaN in {new} of {want.size} elements"
    return f"the reference itself is NaN in {known} of {want.size} elements" if known else ""


def _verdict(good: Array, error: Array, scale: Array, note: str) -> Verdict:
    passed = bool(good.all())
    bad = None if passed else tuple(int(k) for k in np.argwhere(~good)[0])
    relative = error / np.where(scale > 0, scale, 1.0)
    return Verdict(
        passed=passed,
        max_abs_error=float(error.max(initial=0.0)),
        max_rel_error=float(relative.max(initial=0.0)),
        first_bad=bad,
        note=note or ("" if passed else f"{int((~good).sum())} of {good.size} elements differ"),
    )
