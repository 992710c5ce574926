"""Reads the blocks of a schedule, and finds which tiles give each loop its extent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tensorese.arrays import Ints
from tensorese.space.accesses import Access
from tensorese.space.block_moves import Iterator, Moves, NestBlock, Read, Source, Untold
from tensorese.space.probing import Probe, block_name, can_inline
from tensorese.space.replay import SCHEDULE_ERRORS
from tensorese.space.slots import Location, Tile

_MOST_ROWS = 16  # replayed to tell which tile an unnamed loop is


def read_moves(probe: Probe, rng: np.random.Generator) -> Moves:
    """The blocks of a sketch before its first location."""
    tiles = [slot for slot in probe.slots if isinstance(slot, Tile)]
    first = next(slot for slot in probe.slots if isinstance(slot, Location))
    row = _tiled(tiles, rng)
    schedule = probe.before(first.instruction, row)
    moving = _moving(probe, schedule)
    reader = _read_nest(probe, schedule, moving)
    columns = loop_columns(probe, schedule)
    sources = [_named(probe, loop, columns) for loop in reader.loops]
    needed = _needed(reader.blocks, moving)
    unnamed = [loop for loop in needed if sources[loop] is None]
    if unnamed:
        guesses = _Guesses(tiles, [reader.extents[loop] for loop in unnamed], row)
        while guesses.are_open and guesses.rows < _MOST_ROWS:
            row = _tiled(tiles, rng)
            again = _read_nest(probe, probe.before(first.instruction, row), set())
            guesses.see([again.extents[loop] for loop in unnamed], row)
        for loop, source in zip(unnamed, guesses.sources(), strict=True):
            sources[loop] = source
    return Moves(blocks=reader.blocks, sources=sources)


def _moving(probe: Probe, schedule: Any) -> set[str]:
    """The blocks that will move; every block where one cannot be named before some have moved."""
    slots = [slot for slot in probe.slots if isinstance(slot, Location)]
    try:
        blocks = [probe.variable(schedule, slot.instruction, 0) for slot in slots]
    except KeyError:
        blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    return {block_name(schedule, block) for block in blocks}


def _needed(blocks: dict[str, NestBlock], moving: set[str]) -> list[int]:
    """Loops of what moves and of what reads it."""
    written = {blocks[name].buffer for name in moving}
    loops: set[int] = set()
    for name, block in blocks.items():
        if name in moving or any(read.buffer in written for read in block.reads):
            loops.update(block.loops)
    return sorted(loops)


def _named(probe: Probe, loop: Any, columns: list[tuple[Any, tuple[int, ...]]]) -> Source | None:
    """The source of a loop that a sampled tile, or the module itself, made."""
    for variable, mine in columns:
        if variable.same_as(loop.loop_var):
            return Source(columns=mine)
    if probe.referee.is_original(loop.loop_var):
        return Source(constant=int(loop.extent))
    return None


def loop_columns(probe: Probe, schedule: Any) -> list[tuple[Any, tuple[int, ...]]]:
    """`(loop variable, columns)` of every loop a sampled tile was split into."""
    columns: list[tuple[Any, int]] = []
    tiles = {s.column: s for s in probe.slots if isinstance(s, Tile)}
    column = 0
    by_instruction = {}
    for instruction, length in probe.sketch.slots:
        by_instruction[instruction] = column
        column += max(1, length)
    loops: list[tuple[Any, tuple[int, ...]]] = []
    for index, instruction in enumerate(schedule.trace.insts):
        if by_instruction.get(index) in tiles:
            first = by_instruction[index]
            columns.extend((out, first + k) for k, out in enumerate(instruction.outputs))
        if str(instruction.kind.name) != "Split":
            continue
        for factor, loop in zip(instruction.inputs[1:], instruction.outputs, strict=True):
            column_of = next((c for out, c in columns if out.same_as(factor)), None)
            if column_of is None:
                continue
            try:
                loops.append((schedule.get(loop).loop_var, (column_of,)))
            except SCHEDULE_ERRORS:
                continue  # split or fused again: no loop of this name is left
    return loops


def _tiled(tiles: list[Tile], rng: np.random.Generator) -> Ints:
    """A row of tiles, with zeros elsewhere."""
    width = max((tile.column + tile.parts for tile in tiles), default=0)
    row = np.zeros(width, dtype=np.int64)
    for tile in tiles:
        row[tile.column : tile.column + tile.parts] = tile.table[rng.integers(len(tile.table))]
    return row


class _Guesses:
    """For each loop, the constants and columns that have had its extent in every row so far."""

    def __init__(self, tiles: list[Tile], extents: list[int], row: Ints) -> None:
        self.rows = 1
        # Columns that cannot vary are no better than a constant.
        free = [t.column + k for t in tiles for k in range(t.parts) if len(set(t.table[:, k])) > 1]
        self.columns = [{c for c in free if row[c] == extent} for extent in extents]
        self.constants: list[int | None] = list(extents)

    def see(self, extents: list[int], row: Ints) -> None:
        self.rows += 1
        for loop, extent in enumerate(extents):
            self.columns[loop] = {c for c in self.columns[loop] if row[c] == extent}
            if self.constants[loop] != extent:
                self.constants[loop] = None

    @property
    def are_open(self) -> bool:
        pairs = zip(self.columns, self.constants, strict=True)
        return any(len(columns) + (known is not None) > 1 for columns, known in pairs)

    def sources(self) -> list[Source | None]:
        sources: list[Source | None] = []
        for columns, known in zip(self.columns, self.constants, strict=True):
            if len(columns) + (known is not None) != 1:
                sources.append(None)
            elif known is not None:
                sources.append(Source(constant=known))
            else:
                sources.append(Source(columns=tuple(columns)))
        return sources


def _read_nest(probe: Probe, schedule: Any, moving: set[str]) -> _Reader:
    """The blocks of a schedule that read and write by iterators."""
    reader = _Reader(tvm=probe.referee.tvm)
    for rv in schedule.get_child_blocks(schedule.get_sblock("root")):
        nest = [schedule.get(loop) for loop in schedule.get_loops(rv)]
        reader.add(nest, block_name(schedule, rv) in moving and can_inline(schedule, rv))
    return reader


@dataclass(kw_only=True)
class _Reader:
    tvm: Any
    loops: list[Any] = field(default_factory=list)
    buffers: list[Any] = field(default_factory=list)
    blocks: dict[str, NestBlock] = field(default_factory=dict)

    def add(self, nest: list[Any], inline: bool) -> None:
        body = nest[-1].body if nest else None
        if not isinstance(body, self.tvm.s_tir.SBlockRealize) or len(body.block.writes) != 1:
            raise Untold("a block must have loops of its own and one output; ask TVM")
        block, access = body.block, Access(self.tvm, body.block.iter_vars)
        loops = tuple(self._loop(loop) for loop in nest)
        variables = [loop.loop_var for loop in nest]
        iterators = []
        for iterator, value in zip(block.iter_vars, body.iter_values, strict=True):
            mine = frozenset(loops[k] for k in _used(self.tvm, value, variables))
            spatial = int(iterator.iter_type) == 0
            iterators.append(Iterator(loops=mine, whole=mine, spatial=spatial))
        places = [_used(self.tvm, b.min, access.variables) for b in block.writes[0].region]
        if any(len(place) > 1 for place in places):
            raise Untold("a block must write by one iterator a dimension; ask TVM")
        self.blocks[str(block.name_hint)] = NestBlock(
            loops=loops,
            iterators=tuple(iterators),
            reads=tuple(self._read(region, access) for region in block.reads),
            buffer=_number(block.writes[0].source, self.buffers),
            places=tuple(place[0] if place else -1 for place in places),
            inline=inline,
        )

    @property
    def extents(self) -> list[int]:
        return [int(loop.extent) for loop in self.loops]

    def _loop(self, loop: Any) -> int:
        if not isinstance(loop.extent, self.tvm.tirx.IntImm):
            raise Untold("a loop must have a constant extent; ask TVM")
        for index, known in enumerate(self.loops):
            if known.loop_var.same_as(loop.loop_var):
                return index
        self.loops.append(loop)
        return len(self.loops) - 1

    def _is_one(self, extent: Any) -> bool:
        return isinstance(extent, self.tvm.tirx.IntImm) and int(extent) == 1

    def _read(self, region: Any, access: Access) -> Read:
        used = [_used(self.tvm, bounds.min, access.variables) for bounds in region.region]
        affine = [access.affine(b.min) is not None for b in region.region]
        return Read(
            buffer=_number(region.source, self.buffers),
            axes=tuple(map(frozenset, used)),
            wide=tuple(not self._is_one(bounds.extent) for bounds in region.region),
            affine=all(affine),
        )


def _number(wanted: Any, known: list[Any]) -> int:
    for index, one in enumerate(known):
        if one.same_as(wanted):
            return index
    known.append(wanted)
    return len(known) - 1


def _used(tvm: Any, expression: Any, variables: list[Any]) -> list[int]:
    free = tvm.tirx.analysis.undefined_vars(expression)
    return [i for i, v in enumerate(variables) if any(v.same_as(one) for one in free)]
