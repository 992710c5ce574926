"""Legality on integers: what TVM's verdict computes from the tiles of a CUDA sketch.

`VerifyGPUCode` compares the threads of a block with the annotated bounds and the target, and the
bytes of shared memory, after compaction, with the target. It has no limit on local memory, and
the one on virtual threads never fires (it looks for a loop name that lowering does not write).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tensorese.arrays import Ints
from tensorese.space.memo import Asked
from tensorese.space.tiles import Bools, unique_rows


class Limit(Protocol):
    @property
    def replays(self) -> bool:
        """Whether it may ask TVM about each row, milliseconds each."""
        ...

    def legal(self, rows: Ints) -> Bools: ...

    def reachable(self, low: Ints, high: Ints) -> Bools:
        """Whether rows between `low` and `high` may be legal; never False for one that is."""
        ...


@dataclass(frozen=True, kw_only=True)
class Product:
    """A product of columns lies between bounds: threads of a block, trips of a pipeline."""

    columns: tuple[int, ...]
    low: int
    high: int = 1 << 40
    replays: bool = False

    def legal(self, rows: Ints) -> Bools:
        return self.reachable(rows, rows)

    def reachable(self, low: Ints, high: Ints) -> Bools:
        columns = list(self.columns)
        # Float products: a row of undecided columns may overflow an integer.
        most = high[:, columns].astype(np.float64).prod(1)
        least = low[:, columns].astype(np.float64).prod(1)
        overlaps: Bools = (most >= self.low) & (least <= self.high)
        return overlaps


@dataclass(frozen=True, kw_only=True)
class Dimension:
    """Extent of one dimension of a staged region: an affine index over a box of iterations."""

    terms: tuple[tuple[int, tuple[int, ...]], ...]
    """`(coefficient, columns)` per iterator: it spans the product of the columns."""
    cap: int
    """The buffer's own extent."""
    base: int = 1

    def extent(self, rows: Ints) -> Ints:
        total = np.full(len(rows), self.base, dtype=np.int64)
        for coefficient, columns in self.terms:
            total += coefficient * (rows[:, list(columns)].prod(1) - 1)
        return np.minimum(total, self.cap)


@dataclass(frozen=True, kw_only=True)
class AskedDimension:
    """An extent that is not affine in the tiles (grouped channels): TVM computes it."""

    asked: Asked[int]

    def extent(self, rows: Ints) -> Ints:
        answers, which = self.asked.distinct(rows)
        return np.array(answers, dtype=np.int64)[which]


@dataclass(frozen=True, kw_only=True)
class StagedBuffer:
    """A buffer staged in shared memory; a software pipeline keeps several copies."""

    dimensions: tuple[Dimension | AskedDimension, ...]
    element_bytes: int
    copies: int = 1

    def size(self, rows: Ints, *, at_least: bool = False) -> Ints:
        total = np.full(len(rows), self.element_bytes * self.copies, dtype=np.int64)
        for dimension in self.dimensions:
            if not at_least or isinstance(dimension, Dimension):
                total *= dimension.extent(rows)
        return total


@dataclass(frozen=True, kw_only=True)
class SharedMemory:
    """The bytes staged by one kernel fit the target."""

    buffers: tuple[StagedBuffer, ...]
    limit: int
    replays: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether every region is affine; else `used` is a lower bound."""
        regions = [dimension for buffer in self.buffers for dimension in buffer.dimensions]
        return all(isinstance(region, Dimension) for region in regions)

    def legal(self, rows: Ints) -> Bools:
        return self.used(rows) <= self.limit

    def used(self, rows: Ints) -> Ints:
        total = np.zeros(len(rows), dtype=np.int64)
        for buffer in self.buffers:
            total += buffer.size(rows)
        return total

    def reachable(self, low: Ints, high: Ints) -> Bools:
        total = np.zeros(len(low), dtype=np.int64)
        for buffer in self.buffers:
            total += buffer.size(low, at_least=True)
        return total <= self.limit


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """TVM's own verdict, where few columns decide it: choices of thread counts, small tiles."""

    asked: Asked[bool]
    replays: bool = True

    def legal(self, rows: Ints) -> Bools:
        answers, which = self.asked.distinct(rows)
        return np.array(answers, dtype=np.bool_)[which]

    def reachable(self, low: Ints, high: Ints) -> Bools:
        return np.ones(len(low), dtype=np.bool_)


@dataclass(frozen=True, kw_only=True)
class PlacedRegion:
    """What a producer computes inside a consumer's loop may vary from trip to trip (transposed
    convolution), which TVM refuses; it depends on how far each axis reaches inside that loop."""

    column: int
    """Of the location."""
    axes: tuple[tuple[int, ...], ...]
    """Columns of the axes that the irregular index is made of."""
    depths: Mapping[int, int]
    """At which loop each of those columns is."""
    verdicts: dict[tuple[int, ...], bool]
    ask: Callable[[Ints], bool]
    replays: bool = True

    def legal(self, rows: Ints) -> Bools:
        legal = np.ones(len(rows), dtype=np.bool_)
        at = np.flatnonzero(rows[:, self.column] >= 0)
        verdicts = self.verdicts
        unique, first, which = unique_rows(self._spans(rows[at]))
        keys = list(map(tuple, unique.tolist()))
        for key, row in zip(keys, at[first], strict=True):
            if key not in verdicts:
                verdicts[key] = self.ask(rows[row])
        legal[at] = np.array([verdicts[key] for key in keys], dtype=np.bool_)[which]
        return legal

    def _spans(self, rows: Ints) -> Ints:
        """`[n, axes]`: iterations of each axis inside the loop of the location."""
        spans = np.ones((len(rows), len(self.axes)), dtype=np.int64)
        for index, axis in enumerate(self.axes):
            for column in axis:
                inside = self.depths[column] > rows[:, self.column]
                spans[:, index] *= np.where(inside, rows[:, column], 1)
        return spans

    def reachable(self, low: Ints, high: Ints) -> Bools:
        return np.ones(len(low), dtype=np.bool_)
