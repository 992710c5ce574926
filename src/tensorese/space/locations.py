"""Which compute locations TVM accepts, as a function of the decisions before.

TVM offers a producer: inline (when it can be), root, and those loops of its consumers that are
longer than 1, up to the first data-parallel loop after a reduction loop and never in the trailing
reductions. Anything else it silently moves outwards, so a row asking for it is not legal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Protocol, TypeAlias

import numpy as np

from tensorese.arrays import Ints
from tensorese.space.memo import Asked
from tensorese.space.slots import INLINE
from tensorese.space.tiles import Bools

Pattern: TypeAlias = dict[tuple[int, ...], bool]
"""Columns whose product must be 1 (True) or must not (False)."""


class Locator(Protocol):
    """`mask(rows)[:, k]` tells whether location `k - 2` is accepted; later columns are ignored."""

    @property
    def width(self) -> int: ...

    def mask(self, rows: Ints) -> Bools: ...


@dataclass(frozen=True, kw_only=True)
class ConsumerLoop:
    """A loop of the consumer: its extent is `constant` times the product of `columns`."""

    columns: tuple[int, ...]
    constant: int
    parallel: bool
    """Data-parallel, as opposed to a reduction."""


def any_long(rows: Ints, columns: Sequence[int]) -> Bools:
    """Whether the product of the columns is more than 1; columns one by one are not copied."""
    long: Bools = np.zeros(len(rows), dtype=np.bool_)
    for column in columns:
        long |= rows[:, column] != 1
    return long


def offered_mask(
    long: Sequence[Bools], parallel: Sequence[bool], n: int, inline: bool, width: int
) -> Bools:
    """`[n, width]`: TVM's rule, given for each loop in which rows it is longer than 1."""
    offered = np.zeros((n, width), dtype=np.bool_)
    offered[:, 0], offered[:, 1] = inline, True
    last = max((i for i, p in enumerate(parallel) if p), default=-1)
    reduced = np.zeros(n, dtype=np.bool_)  # a reduction loop longer than 1 was passed
    stopped = np.zeros(n, dtype=np.bool_)
    for index, (is_long, is_parallel) in enumerate(zip(long, parallel, strict=True)):
        if is_parallel:
            stopped |= is_long & reduced
        else:
            reduced |= is_long
            if index > last:
                stopped |= is_long
        offered[:, index + 2] = is_long & ~stopped
    return offered


@dataclass(frozen=True, kw_only=True)
class LoopRule:
    """TVM's rule for a consumer whose loops are tiles (or constants)."""

    loops: tuple[ConsumerLoop, ...]
    inline: bool

    @property
    def width(self) -> int:
        return len(self.loops) + 2

    def mask(self, rows: Ints) -> Bools:
        return offered_mask(
            [self._is_long(loop, rows) for loop in self.loops],
            [loop.parallel for loop in self.loops],
            len(rows),
            self.inline,
            self.width,
        )

    @property
    def _last_parallel(self) -> int:
        return max((i for i, loop in enumerate(self.loops) if loop.parallel), default=-1)

    @staticmethod
    def _is_long(loop: ConsumerLoop, rows: Ints) -> Bools:
        if loop.constant > 1:
            return np.ones(len(rows), dtype=np.bool_)
        return any_long(rows, loop.columns)

    def patterns(self) -> Iterator[Pattern]:
        """Disjoint conditions on the tiles, one per accepted location: what counting needs."""
        yield from ({} for _ in range(1 + self.inline))
        for index, loop in enumerate(self.loops):
            if loop.parallel or index < self._last_parallel:
                yield from self._reaching(index)

    def _reaching(self, index: int) -> Iterator[Pattern]:
        """The loop is long and nothing before it stopped the search."""
        target = self.loops[index]
        before = range(index)
        reductions = [r for r in before if not self.loops[r].parallel]
        firsts = [None] if target.parallel else [None, *reductions]
        for first in firsts:
            short = [r for r in reductions if first is None or r < first]
            if first is not None:  # then no long parallel loop may lie between the two
                short += [p for p in range(first + 1, index) if self.loops[p].parallel]
            pattern = _conditions(
                [(self.loops[s], True) for s in short]
                + [(self.loops[x], False) for x in ([] if first is None else [first])]
                + [(target, False)]
            )
            if pattern is not None:
                yield pattern


def _conditions(wanted: list[tuple[ConsumerLoop, bool]]) -> Pattern | None:
    """The wishes as one pattern, or None when a constant or another wish contradicts them."""
    pattern: Pattern = {}
    for loop, short in wanted:
        if loop.constant > 1 or not loop.columns:
            if short == (loop.constant > 1):
                return None
        elif pattern.setdefault(loop.columns, short) != short:
            return None
    return pattern


def merge(patterns: tuple[Pattern, ...]) -> Pattern | None:
    """All of them at once; None when they contradict one another."""
    merged: Pattern = {}
    for pattern in patterns:
        for columns, short in pattern.items():
            if merged.setdefault(columns, short) != short:
                return None
    return merged


def joint_patterns(rules: Sequence[LoopRule]) -> Iterator[Pattern]:
    """Disjoint conditions of every combination of the rules' locations."""
    for combination in product(*(list(rule.patterns()) for rule in rules)):
        merged = merge(combination)
        if merged is not None:
            yield merged


@dataclass(frozen=True, kw_only=True)
class LocationTable:
    """Domains that TVM computes, for sketches with few tiles (reductions, softmax), where loops
    come from earlier locations."""

    asked: Asked[tuple[int, ...]]
    width: int

    def mask(self, rows: Ints) -> Bools:
        answers, which = self.asked.distinct(rows)
        masks = np.zeros((len(answers), self.width), dtype=np.bool_)
        for index, offered in enumerate(answers):
            masks[index, [value - INLINE for value in offered]] = True
        return masks[which]
