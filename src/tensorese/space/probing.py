"""Finds how a location's domain follows from the decisions before it, and checks it on TVM."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tensorese.language.primitive import fill_slots
from tensorese.records.nouns import Sketch
from tensorese.space.asked import Asked
from tensorese.space.decisions import DecisionSpace
from tensorese.space.locations import LocationTable, Locator, Loop, LoopRule
from tensorese.space.replay import SCHEDULE_ERRORS, Referee
from tensorese.space.slots import INLINE, ROOT, Location, Slot, Tile
from tensorese.space.tiles import Ints

PROBES = 8
MAX_OPEN_PARTS = 8  # of tiles: a table may have to ask about 2**8 patterns of them, at worst


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One sketch of a referee, asked row by row."""

    referee: Referee
    index: int
    sketch: Sketch
    slots: tuple[Slot, ...]

    def values(self, row: Sequence[int] | Ints) -> list[tuple[int, Any]]:
        return list(fill_slots(self.sketch.slots, tuple(int(v) for v in row)))

    def before(self, instruction: int, row: Ints) -> Any:
        """The schedule just before an instruction; columns decided later may be missing."""
        missing = self.sketch.n_decisions - len(row)
        values = self.values([*row, *[1] * missing])
        return self.referee.prefix(self.index, instruction, values)

    def passes(self, row: Ints) -> bool:
        """TVM's verdict on a whole row: it schedules, and every postprocessor agrees."""
        try:
            return self.referee.replay(self.index, self.values(row)).passed
        except SCHEDULE_ERRORS:
            return False

    def answers(self, slot: Location, row: Ints, wishes: Sequence[int]) -> list[int]:
        """Where TVM puts the block when asked for each of the wishes."""
        schedule = self.before(slot.instruction, row)
        block = self.variable(schedule, slot.instruction, 0)
        return [_locate(schedule, block, wish) for wish in wishes]

    def offered(self, slot: Location, row: Ints) -> tuple[int, ...]:
        """The locations TVM accepts after this row's earlier decisions, ascending.

        Asked for one that it does not accept, TVM answers with the nearest one before it.
        """
        schedule = self.before(slot.instruction, row)
        block = self.variable(schedule, slot.instruction, 0)
        found: list[int] = []
        wish = _depth(schedule, block)
        while wish >= ROOT:
            found.append(_locate(schedule, block, wish))
            wish = found[-1] - 1
        if _locate(schedule, block, INLINE) == INLINE:
            found.append(INLINE)
        return tuple(reversed(found))

    def variable(self, schedule: Any, instruction: int, position: int) -> Any:
        """What stands, in this replay, for an input of the sketch's instruction."""
        mine = self.referee.instructions[self.index]
        name = mine[instruction].inputs[position]
        for theirs, ours in zip(mine, schedule.trace.insts, strict=False):
            for output, here in zip(theirs.outputs, ours.outputs, strict=True):
                if output.same_as(name):
                    return here
        raise KeyError(f"instruction {instruction} has no input {position}")


def _depth(schedule: Any, block: Any) -> int:
    consumers = schedule.get_consumers(block)
    return max((len(schedule.get_loops(consumer)) for consumer in consumers), default=0)


def _locate(schedule: Any, block: Any, wish: int) -> int:
    schedule.sample_compute_location(block, decision=wish)
    trace = schedule.trace
    return int(trace.decisions[trace.insts[-1]])


def find_locators(probe: Probe, space: DecisionSpace, rng: np.random.Generator) -> DecisionSpace:
    """The space with a checked locator for every location, or with the reason why not."""
    for slot in space.locations:
        locator = _locator(probe, space, slot, rng)
        if locator is None:
            said = f"compute location in column {slot.column} depends on too many tiles"
            return replace(space, reason=said)
        space = replace(space, locators={**space.locators, slot.column: locator})
    return space


def _locator(
    probe: Probe, space: DecisionSpace, slot: Location, rng: np.random.Generator
) -> Locator | None:
    earlier = replace(space, slots=tuple(s for s in space.slots if s.column < slot.column))
    rows = np.zeros((PROBES, space.n_columns), dtype=np.int64)
    rows[:, : slot.column] = earlier.draw(PROBES, rng)
    loops = None if _follows_a_move(probe, space, slot, rows[0]) else _loops(probe, slot, rows[0])
    if loops is not None:
        inline = probe.answers(slot, rows[0], [INLINE]) == [INLINE]
        rule = LoopRule(loops=tuple(loops), inline=inline)
        wishes = [len(loops), *rng.integers(ROOT, len(loops) + 1, size=PROBES - 1).tolist()]
        if all(_agrees(probe, slot, rule, row, w) for row, w in zip(rows, wishes, strict=True)):
            return rule
    return _table(probe, space, slot, rows)


def _follows_a_move(probe: Probe, space: DecisionSpace, slot: Location, row: Ints) -> bool:
    """Whether an earlier location moves a block that reads, at some remove, what this one makes:
    its loops then change with that decision."""
    earlier = [s for s in space.locations if s.column < slot.column]
    if not earlier:
        return False
    schedule = probe.before(earlier[0].instruction, row)
    try:
        moved = [probe.variable(schedule, s.instruction, 0) for s in (*earlier, slot)]
    except KeyError:  # a block found only after something has moved
        return True
    *names, _ = [str(schedule.get(block).name_hint) for block in moved]
    waiting, readers = [moved[-1]], set[str]()
    while waiting:
        for consumer in schedule.get_consumers(waiting.pop()):
            name = str(schedule.get(consumer).name_hint)
            if name not in readers:
                readers.add(name)
                waiting.append(consumer)
    return not readers.isdisjoint(names)


def _agrees(probe: Probe, slot: Location, rule: LoopRule, row: Ints, wish: int) -> bool:
    """TVM answers the wish as the rule predicts: with it, or with the nearest offer before it."""
    offered = np.flatnonzero(rule.mask(row[None])[0]) + INLINE
    expected = max((int(v) for v in offered if v <= wish), default=ROOT)
    return probe.answers(slot, row, [wish]) == [expected]


def _loops(probe: Probe, slot: Location, row: Ints) -> list[Loop] | None:
    """The loops around the consumers, each a product of columns; None when some are not."""
    schedule = probe.before(slot.instruction, row)
    block = probe.variable(schedule, slot.instruction, 0)
    consumers = schedule.get_consumers(block)
    if not consumers:
        return []
    nests = [[schedule.get(loop) for loop in schedule.get_loops(c)] for c in consumers]
    depth = next(
        (
            d
            for d in range(min(map(len, nests)))
            if not all(nest[d].loop_var.same_as(nests[0][d].loop_var) for nest in nests)
        ),
        min(map(len, nests)),
    )
    sources = _loop_columns(probe, schedule)
    found = []
    for rv, loop in zip(schedule.get_loops(consumers[0])[:depth], nests[0], strict=False):
        columns = next((c for var, c in sources if var.same_as(loop.loop_var)), ())
        if not columns and not probe.referee.is_original(loop.loop_var):
            return None
        constant = 1 if columns else int(loop.extent)
        found.append(Loop(columns=columns, constant=constant, parallel=_is_parallel(schedule, rv)))
    return found


def _loop_columns(probe: Probe, schedule: Any) -> list[tuple[Any, tuple[int, ...]]]:
    """`(loop variable, columns)` of every loop a sampled tile was split into."""
    columns: list[tuple[Any, int]] = []
    tiles = {s.column: s for s in probe.slots if isinstance(s, Tile)}
    column = 0
    by_instruction = {}
    for instruction, length in probe.sketch.slots:
        by_instruction[instruction] = column
        column += max(1, length)
    found: list[tuple[Any, tuple[int, ...]]] = []
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
                found.append((schedule.get(loop).loop_var, (column_of,)))
            except SCHEDULE_ERRORS:
                continue  # split or fused again: no loop of this name is left
    return found


def _is_parallel(schedule: Any, loop: Any) -> bool:
    ffi: Any = importlib.import_module("tvm_ffi")
    kind = ffi.get_global_func("s_tir.schedule.GetLoopIterType")(schedule, loop)
    return str(kind) == "S"


def _table(probe: Probe, space: DecisionSpace, slot: Location, rows: Ints) -> LocationTable | None:
    """Domains by earlier location and by which tile parts are longer than 1: nothing else of a
    tile decides which loops a block may move to."""
    tiles = [s for s in space.slots if isinstance(s, Tile) and s.column < slot.column]
    if sum(tile.parts for tile in tiles if tile.extent > 1) > MAX_OPEN_PARTS:
        return None
    columns = [s.column + k for s in tiles for k in range(s.parts)]
    located = [s.column for s in space.locations if s.column < slot.column]
    asked: Asked[tuple[int, ...]] = Asked(
        capped=tuple(columns), columns=tuple(located), ask=lambda row: probe.offered(slot, row)
    )
    return LocationTable(asked=asked, width=2 + _deepest(probe, slot, rows))


def _deepest(probe: Probe, slot: Location, rows: Ints) -> int:
    """More loops than any consumer of the block can have, in any row."""
    schedule = probe.before(slot.instruction, rows[0])
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    return sum(len(schedule.get_loops(block)) for block in blocks)
