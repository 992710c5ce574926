"""What moving blocks does to their loops, followed without TVM.

Locations of a softmax come one after the other: where a block went decides which loops its
producers may go to. Only three things matter: whose loop it is, whether it is longer than 1, and
whether some block under it reduces over it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tensorese.errors import TensoreseError
from tensorese.space.slots import INLINE, ROOT
from tensorese.space.tiles import Ints

LONG = 2  # stands for every extent above 1


class Untold(TensoreseError):
    """A nest of loops that is not read here: ask TVM."""


@dataclass(frozen=True, kw_only=True)
class Iterator:
    """An iterator of a block: the loops its value is made of."""

    loops: frozenset[int]
    extent: int
    spatial: bool


@dataclass(frozen=True, kw_only=True)
class Read:
    """A read of a buffer: per dimension the iterators in its index, and whether one iteration
    alone covers more than one element."""

    buffer: int
    axes: tuple[frozenset[int], ...]
    wide: tuple[bool, ...]


@dataclass(frozen=True, kw_only=True)
class Block:
    loops: tuple[int, ...]
    iterators: tuple[Iterator, ...]
    reads: tuple[Read, ...]
    buffer: int
    """What it writes."""
    places: tuple[int, ...]
    """The iterator that is the index of each dimension of that buffer."""
    inline: bool


@dataclass
class Loops:
    """Blocks by name, and the extents of all loops; changed by every move."""

    blocks: dict[str, Block]
    extents: list[int]

    def copy(self) -> Loops:
        return Loops(blocks=dict(self.blocks), extents=list(self.extents))

    def offered(self, name: str) -> tuple[int, ...]:
        """The locations TVM offers the block, ascending."""
        block = self.blocks[name]
        found = [INLINE, ROOT] if block.inline else [ROOT]
        shared = self._shared(self._consumers(block))
        parallel = [self._is_parallel(loop) for loop in shared]
        last = max((i for i, p in enumerate(parallel) if p), default=-1)
        reduced = False
        for index, loop in enumerate(shared):
            if self.extents[loop] == 1:
                continue
            if parallel[index] and reduced:
                break
            if not parallel[index]:
                reduced = True
                if index > last:
                    break
            found.append(index)
        return tuple(found)

    def move(self, name: str, location: int) -> None:
        if location == INLINE:
            self._inline(name)
        elif location != ROOT:
            self._compute_at(name, location)

    def _consumers(self, block: Block) -> list[Block]:
        return [b for b in self.blocks.values() if any(r.buffer == block.buffer for r in b.reads)]

    @staticmethod
    def _shared(blocks: Sequence[Block]) -> list[int]:
        """The loops around all of them."""
        if not blocks:
            return []
        nests = [block.loops for block in blocks]
        found = []
        for level in zip(*nests, strict=False):
            if len(set(level)) > 1:
                break
            found.append(level[0])
        return found

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
            extent, loops = iterator.extent, frozenset[int]()
            if iterator.spatial:
                dimension = block.places.index(place)
                extent, loops = self._needed(block.buffer, dimension, consumers, outer)
                extent = min(extent, iterator.extent)
            mine.append(len(self.extents))
            self.extents.append(extent)
            iterators.append(replace(iterator, loops=loops | {mine[-1]}))
        self.blocks[name] = replace(block, loops=(*outer, *mine), iterators=tuple(iterators))

    def _needed(
        self, buffer: int, dimension: int, consumers: list[Block], outer: tuple[int, ...]
    ) -> tuple[int, frozenset[int]]:
        """How much of a dimension the consumers read in one trip of the outer loops."""
        wide, feeding = False, set[int]()
        for block in consumers:
            for read in block.reads:
                if read.buffer != buffer:
                    continue
                wide |= read.wide[dimension]
                for axis in read.axes[dimension]:
                    loops = block.iterators[axis].loops
                    wide |= any(self.extents[loop] > 1 for loop in loops.difference(outer))
                    feeding |= {x for x in loops.intersection(outer) if self.extents[x] > 1}
        return LONG if wide else 1, frozenset(feeding)


def _through(gone: Block, read: Read, inner: Read) -> Read:
    """`inner`, a read of the inlined block, in the iterators of the block that read it."""
    axes, wide = [], []
    for dimension, mine in enumerate(inner.axes):
        places = [gone.places.index(axis) for axis in mine if axis in gone.places]
        axes.append(frozenset[int]().union(*(read.axes[place] for place in places)))
        wide.append(inner.wide[dimension] or any(read.wide[place] for place in places))
    return Read(buffer=inner.buffer, axes=tuple(axes), wide=tuple(wide))


@dataclass(kw_only=True)
class Moves:
    """The locations offered after a row's earlier ones, from the loops before any was taken."""

    start: Callable[[Ints], Loops]
    """The loops under a row's tiles: one reading per pattern of tiles longer than 1."""
    capped: tuple[int, ...]
    moved: list[tuple[int, str]]
    """`(column, block)` of every location, in order."""
    known: dict[tuple[bool, ...], Loops] = field(default_factory=dict)

    def offered(self, column: int, row: Ints) -> tuple[int, ...]:
        key = tuple(bool(v == 1) for v in row[list(self.capped)])
        if key not in self.known:
            self.known[key] = self.start(row)
        loops = self.known[key].copy()
        for earlier, name in self.moved:
            if earlier == column:
                return loops.offered(name)
            loops.move(name, int(row[earlier]))
        raise KeyError(f"no location in column {column}")

    def agrees(self, column: int, row: Ints, answer: tuple[int, ...]) -> bool:
        """Whether the moves are followed, as TVM's answer for a row confirms."""
        try:
            return self.offered(column, row) == answer
        except Untold:
            return False


def read_loops(tvm: Any, schedule: Any, inline: Mapping[str, bool]) -> Loops:
    """The loops of a schedule whose blocks each stand alone, reading and writing by iterators."""
    reader = _Reader(tvm=tvm, inline=inline)
    for rv in schedule.get_child_blocks(schedule.get_sblock("root")):
        reader.add([schedule.get(loop) for loop in schedule.get_loops(rv)])
    return reader.found


@dataclass(kw_only=True)
class _Reader:
    tvm: Any
    inline: Mapping[str, bool]
    buffers: list[Any] = field(default_factory=list)
    found: Loops = field(default_factory=lambda: Loops(blocks={}, extents=[]))

    def add(self, nest: list[Any]) -> None:
        body = nest[-1].body if nest else None
        if not isinstance(body, self.tvm.s_tir.SBlockRealize) or len(body.block.writes) != 1:
            raise Untold("a block must have loops of its own and one output; ask TVM")
        block, first = body.block, len(self.found.extents)
        self.found.extents.extend(int(loop.extent) for loop in nest)
        variables = [loop.loop_var for loop in nest]
        iterators = tuple(
            Iterator(
                loops=frozenset(first + k for k in self._used(value, variables)),
                extent=int(it.dom.extent),
                spatial=int(it.iter_type) == 0,
            )
            for it, value in zip(block.iter_vars, body.iter_values, strict=True)
        )
        names = [it.var for it in block.iter_vars]
        places = [self._used(bounds.min, names) for bounds in block.writes[0].region]
        if any(len(place) > 1 for place in places):
            raise Untold("a block must write by one iterator a dimension; ask TVM")
        self.found.blocks[str(block.name_hint)] = Block(
            loops=tuple(range(first, first + len(nest))),
            iterators=iterators,
            reads=tuple(self._read(region, names) for region in block.reads),
            buffer=self._number(block.writes[0].source),
            places=tuple(place[0] if place else -1 for place in places),
            inline=self.inline[str(block.name_hint)],
        )

    def _read(self, region: Any, names: list[Any]) -> Read:
        return Read(
            buffer=self._number(region.source),
            axes=tuple(frozenset(self._used(bounds.min, names)) for bounds in region.region),
            wide=tuple(str(bounds.extent) != "1" for bounds in region.region),
        )

    def _number(self, buffer: Any) -> int:
        for index, one in enumerate(self.buffers):
            if one.same_as(buffer):
                return index
        self.buffers.append(buffer)
        return len(self.buffers) - 1

    def _used(self, expression: Any, variables: list[Any]) -> list[int]:
        free = self.tvm.tirx.analysis.undefined_vars(expression)
        return [i for i, v in enumerate(variables) if any(v.same_as(one) for one in free)]
