"""Perfect tiles: every way to write an extent as an ordered product, as one table of rows."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Ints
from tensorese.errors import TensoreseError

Bools: TypeAlias = npt.NDArray[np.bool_]

MAX_TABLE = 2_000_000  # rows; the zoo's largest tile (5 parts) has some ten thousand


class SpaceError(TensoreseError):
    """A sketch, row or trace that does not belong to the space that reads it."""


def divisors(extent: int) -> list[int]:
    small = [d for d in range(1, int(extent**0.5) + 1) if extent % d == 0]
    return small + [extent // d for d in reversed(small) if d * d != extent]


@lru_cache(maxsize=512)
def factorisations(extent: int, parts: int, limit: int = -1) -> Ints:
    """`[m, parts]`, sorted; the innermost part at most `limit` unless that is -1.

    One row drawn uniformly is one factorisation drawn uniformly, which is TVM's distribution.
    """
    rows = np.ones((1, 0), dtype=np.int64)
    left = np.array([extent], dtype=np.int64)
    for _ in range(parts - 1):
        grown, rest = [], []
        for divisor in divisors(extent):
            fits = left % divisor == 0
            column = np.full((int(fits.sum()), 1), divisor, dtype=np.int64)
            grown.append(np.hstack([rows[fits], column]))
            rest.append(left[fits] // divisor)
        rows, left = np.vstack(grown), np.concatenate(rest)
        if len(rows) > MAX_TABLE:
            raise SpaceError(
                f"a tile may have at most {MAX_TABLE} factorisations, but {extent} in {parts} "
                "parts has more; tune a smaller shape"
            )
    rows = np.hstack([rows, left[:, None]])
    if limit >= 0:
        rows = rows[rows[:, -1] <= limit]
    rows = rows[np.lexsort(rows.T[::-1])]
    rows.setflags(write=False)
    return rows


def unique_rows(rows: Ints) -> tuple[Ints, Ints, Ints]:
    """Distinct rows in lexical order, where each is first, and for each row which it is.

    One number a row is sorted where it fits: sorting rows as such takes many times as long.
    """
    if not rows.size:
        first = np.zeros(min(1, len(rows)), dtype=np.int64)
        return rows[: len(first)], first, np.zeros(len(rows), dtype=np.int64)
    low = rows.min(0)
    spans = rows.max(0) - low + 1
    if float(spans.astype(np.float64).prod()) < 2.0**62:
        strides = np.append(spans[:0:-1].cumprod()[::-1], 1)
        _, first, which = np.unique(
            ((rows - low) * strides).sum(1), return_index=True, return_inverse=True
        )
        return rows[first], first, which.reshape(-1)
    unique, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return unique, first, which.reshape(-1)
