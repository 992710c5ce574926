"""What moving blocks does to their loops, followed without TVM.

Where a block went decides which loops its producers may go to (softmax, padded and dilated
inputs). Which loops there are follows from the earlier locations; of a loop's extent it matters
only whether it is longer than 1, which is computed for many rows at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from tensorese.arrays import Ints
from tensorese.errors import TensoreseError
from tensorese.space.locations import any_long, offered_mask
from tensorese.space.slots import INLINE, ROOT
from tensorese.space.tiles import Bools, unique_rows

_MAX_PATTERNS = 256  # of loops longer than 1, for which the loops after each move are kept
_MAX_LOOPS = 62  # one bit each


class Untold(TensoreseError):
    """Loops whose extents do not follow from the row: ask TVM."""


@dataclass(frozen=True, kw_only=True)
class Iterator:
    """An iterator of a block: the loops its value is made of, now and before any move."""

    loops: frozenset[int]
    whole: frozenset[int]
    spatial: bool


@dataclass(frozen=True, kw_only=True)
class Read:
    """A read of a buffer: per dimension the iterators in its index, and whether one iteration
    alone covers more than one element."""

    buffer: int
    axes: tuple[frozenset[int], ...]
    wide: tuple[bool, ...]
    affine: bool = True


@dataclass(frozen=True, kw_only=True)
class NestBlock:
    loops: tuple[int, ...]
    iterators: tuple[Iterator, ...]
    reads: tuple[Read, ...]
    buffer: int
    """What it writes."""
    places: tuple[int, ...]
    """The iterator that is the index of each dimension of that buffer."""
    inline: bool


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the extent of a loop comes from: a constant times the product of columns."""

    columns: tuple[int, ...] = ()
    constant: int = 1

    def is_long(self, rows: Ints) -> Bools:
        if self.constant > 1:
            return np.ones(len(rows), dtype=np.bool_)
        return any_long(rows, self.columns)


@dataclass
class Loops:
    """The blocks after some moves, and for each loop in which rows it is longer than 1."""

    blocks: dict[str, NestBlock]
    long: list[Bools]

    def offered(self, name: str, width: int) -> Bools:
        """`[n, width]`: the locations TVM offers the block."""
        block = self.blocks[name]
        shared = self._shared(self._consumers(block))
        parallel = [self._is_parallel(loop) for loop in shared]
        return offered_mask(
            [self.long[loop] for loop in shared], parallel, len(self.long[0]), block.inline, width
        )

    def move(self, name: str, location: int) -> None:
        if location == INLINE:
            self._inline(name)
        elif location != ROOT:
            self._compute_at(name, location)

    def _consumers(self, block: NestBlock) -> list[NestBlock]:
        return [b for b in self.blocks.values() if any(r.buffer == block.buffer for r in b.reads)]

    @staticmethod
    def _shared(blocks: Sequence[NestBlock]) -> list[int]:
        """The loops around all of them."""
        shared = []
        for level in zip(*(block.loops for block in blocks), strict=False):
            if len(set(level)) > 1:
                break
            shared.append(level[0])
        return shared

    def _is_parallel(self, loop: int) -> bool:
        under = (block for block in self.blocks.values() if loop in block.loops)
        return not any(loop in it.loops and not it.spatial for b in under for it in b.iterators)

    def _inline(self, name: str) -> None:
        gone = self.blocks.pop(name)
        for other, block in self.blocks.items():
            reads: list[Read] = []
            for read in block.reads:
                if read.buffer == gone.buffer:
                    reads.extend(_through(gone, read, inner) for inner in gone.reads)
                else:
                    reads.append(read)
            self.blocks[other] = replace(block, reads=tuple(reads))

    def _compute_at(self, name: str, location: int) -> None:
        block = self.blocks[name]
        consumers = self._consumers(block)
        outer = consumers[0].loops[: location + 1]
        iterators, mine = [], []
        for place, iterator in enumerate(block.iterators):
            long, loops = self._any_long(iterator.whole), frozenset[int]()
            if iterator.spatial:
                dimension = block.places.index(place)
                needed, loops = self._needed(block.buffer, dimension, consumers, outer)
                long = long & needed
            mine.append(len(self.long))
            self.long.append(long)
            iterators.append(replace(iterator, loops=loops | {mine[-1]}))
        self.blocks[name] = replace(block, loops=(*outer, *mine), iterators=tuple(iterators))

    def _needed(
        self, buffer: int, dimension: int, consumers: list[NestBlock], outer: tuple[int, ...]
    ) -> tuple[Bools, frozenset[int]]:
        """Whether the consumers read more than one element of a dimension in one trip of the
        outer loops, and which of those its place depends on."""
        wide, inner, feeding = False, set[int](), set[int]()
        for block in consumers:
            for read in block.reads:
                if read.buffer == buffer:
                    wide |= read.wide[dimension]
                    for axis in read.axes[dimension]:
                        inner |= block.iterators[axis].loops.difference(outer)
                        feeding |= block.iterators[axis].loops.intersection(outer)
        return self._any_long(inner) | wide, frozenset(feeding)

    def _any_long(self, loops: frozenset[int] | set[int]) -> Bools:
        long = np.zeros(len(self.long[0]), dtype=np.bool_)
        for loop in loops:
            long |= self.long[loop]
        return long


def _through(gone: NestBlock, read: Read, inner: Read) -> Read:
    """`inner`, a read of the inlined block, in the iterators of the block that read it."""
    axes, wide = [], []
    for dimension, mine in enumerate(inner.axes):
        places = [gone.places.index(axis) for axis in mine if axis in gone.places]
        axes.append(frozenset[int]().union(*(read.axes[place] for place in places)))
        wide.append(inner.wide[dimension] or any(read.wide[place] for place in places))
    affine = read.affine and inner.affine
    return Read(buffer=inner.buffer, axes=tuple(axes), wide=tuple(wide), affine=affine)


@dataclass(kw_only=True)
class Moves:
    """A sketch's blocks before any location is decided, and the order in which they move."""

    blocks: dict[str, NestBlock]
    sources: list[Source | None]
    """Of every loop; None where it is not known."""
    moved: list[tuple[int, str]] = field(default_factory=list)
    """`(column, block)` of every location, in order."""
    patterns: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Which loops are long, as bits: what the states are for, while there are few."""
    states: dict[tuple[int, ...], Loops] = field(default_factory=dict)
    """The loops after the first locations."""
    masks: dict[tuple[int, ...], Bools] = field(default_factory=dict)
    """What is offered then to the block that moves next."""

    def mask(self, column: int, rows: Ints, width: int) -> Bools:
        """`[n, width]`: the locations offered after each row's earlier ones."""
        if not len(rows):
            return np.zeros((0, width), dtype=np.bool_)
        order = [place for place, _ in self.moved]
        name = self.moved[order.index(column)][1]
        prefixes, _, which = unique_rows(rows[:, order[: order.index(column)]])
        patterns, mine = self._patterns(rows)
        taken = [tuple(prefix) for prefix in prefixes.tolist()]
        if len(patterns) <= _MAX_PATTERNS:
            mine = self._remember(patterns)[mine]
            offered: Bools = self._masks(name, taken, width)[which, mine]
            return offered
        offered = np.zeros((len(rows), width), dtype=np.bool_)
        for index, prefix in enumerate(taken):
            at = np.flatnonzero(which == index)
            loops = self._moved(self._start(patterns[mine[at]]), prefix)
            offered[at] = loops.offered(name, width)
        return offered

    def _masks(self, name: str, prefixes: list[tuple[int, ...]], width: int) -> Bools:
        """`[prefixes, patterns, width]`; a prefix is as long as the moves before the block's."""
        for prefix in prefixes:
            if prefix not in self.masks:
                self.masks[prefix] = self._state(prefix).offered(name, width)
        return np.array([self.masks[prefix] for prefix in prefixes])

    def _patterns(self, rows: Ints) -> tuple[Ints, Ints]:
        """Which loops are long, as bits: the distinct patterns, and which each row has."""
        always, varying = self._sorted_sources
        bits = np.full(len(rows), always, dtype=np.int64)
        for loop, source in varying:
            bits |= source.is_long(rows).astype(np.int64) << loop
        if not varying:
            return bits[:1], np.zeros(len(rows), dtype=np.int64)
        patterns, mine = np.unique(bits, return_inverse=True)
        return patterns, mine.reshape(-1)

    @cached_property
    def _sorted_sources(self) -> tuple[int, list[tuple[int, Source]]]:
        """Bits of the loops that are always long, and the loops that may be."""
        known = [(loop, source) for loop, source in enumerate(self.sources) if source is not None]
        always = sum(1 << loop for loop, source in known if source.constant > 1)
        return always, [(k, s) for k, s in known if s.constant == 1 and s.columns]

    def _remember(self, patterns: Ints) -> Ints:
        """Where each pattern is among those the states are for."""
        at = np.searchsorted(self.patterns, patterns)
        if len(self.patterns) and (self.patterns.take(at, mode="clip") == patterns).all():
            return at
        known = np.union1d(self.patterns, patterns)
        self.patterns = known if len(known) <= _MAX_PATTERNS else patterns
        self.states.clear()
        self.masks.clear()
        return np.searchsorted(self.patterns, patterns)

    def _state(self, prefix: tuple[int, ...]) -> Loops:
        if prefix not in self.states:
            if prefix:
                before = self._state(prefix[:-1])
                after = Loops(blocks=dict(before.blocks), long=list(before.long))
                after.move(self.moved[len(prefix) - 1][1], prefix[-1])
            else:
                after = self._start(self.patterns)
            self.states[prefix] = after
        return self.states[prefix]

    def _moved(self, loops: Loops, prefix: tuple[int, ...]) -> Loops:
        for (_, name), location in zip(self.moved, prefix, strict=False):
            loops.move(name, location)
        return loops

    def _start(self, patterns: Ints) -> Loops:
        long = [(patterns >> loop & 1).astype(np.bool_) for loop in range(len(self.sources))]
        return Loops(blocks=dict(self.blocks), long=long)

    def check(self) -> None:
        """Raises when the loops around a moved block's readers, or its own, are not known."""
        if len(self.sources) > _MAX_LOOPS:
            raise Untold(f"a sketch must have at most {_MAX_LOOPS} loops; ask TVM")
        names = {name for _, name in self.moved}
        written = {self.blocks[name].buffer for name in names}
        for name, block in self.blocks.items():
            reads = [read for read in block.reads if read.buffer in written]
            if not reads and name not in names:
                continue
            if any(self.sources[loop] is None for loop in block.loops):
                raise Untold("the extent of every loop must follow from the tiles; ask TVM")
            if not all(read.affine for read in reads):
                raise Untold("a moved block must be read by affine indices; ask TVM")


@dataclass(frozen=True, kw_only=True)
class MovedRule:
    """TVM's rule for a block whose consumers may have moved."""

    moves: Moves
    column: int
    width: int

    def mask(self, rows: Ints) -> Bools:
        return self.moves.mask(self.column, rows, self.width)
