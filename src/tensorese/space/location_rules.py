"""Finds how a location's domain follows from the decisions before it, and checks it on TVM."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from tensorese.arrays import Ints
from tensorese.space.block_moves import MovedRule, Moves, Untold
from tensorese.space.decisions import DecisionSpace
from tensorese.space.locations import ConsumerLoop, LocationTable, Locator, LoopRule
from tensorese.space.loop_nests import loop_columns, read_moves
from tensorese.space.memo import Asked
from tensorese.space.probing import Offer, Probe, block_name, can_inline, locate
from tensorese.space.slots import INLINE, ROOT, Location, Tile

PROBES = 2  # rows put to TVM for every new rule; the audit puts hundreds
MAX_OPEN_PARTS = 8  # of tiles: a table may have to ask about 2**8 patterns of them, at worst


def find_locators(
    probe: Probe, space: DecisionSpace, rng: np.random.Generator, checked: set[LoopRule]
) -> DecisionSpace:
    """The space with a checked locator for every location, or with the reason why not.

    `checked` holds the rules of a task's earlier sketches, which most sketches share.
    """
    finder = _Finder(probe=probe, rng=rng, checked=checked)
    for slot in space.locations:
        locator = finder.locator(space, slot)
        if locator is None:
            reason = f"compute location in column {slot.column} depends on too many tiles"
            return replace(space, reason=reason)
        space = replace(space, locators={**space.locators, slot.column: locator})
    return space


@dataclass(kw_only=True)
class _Finder:
    """The locations of one sketch, in order."""

    probe: Probe
    rng: np.random.Generator
    checked: set[LoopRule]
    moved: list[tuple[int, str]] = field(default_factory=list)
    moves: Moves | None = None

    def locator(self, space: DecisionSpace, slot: Location) -> Locator | None:
        earlier = replace(space, slots=tuple(s for s in space.slots if s.column < slot.column))
        rows = np.zeros((PROBES, space.n_columns), dtype=np.int64)
        rows[:, : slot.column] = earlier.draw(PROBES, self.rng)
        schedule, block = self.probe.at(slot, rows[0])
        self.moved.append((slot.column, block_name(schedule, block)))
        if not self._follows_a_move(space, slot, rows[0]):
            rule = self._rule(slot, rows, schedule, block)
            if rule is not None:
                return rule
        moves = self._moves(slot, rows[0], schedule, block)
        return moves or self._table(space, slot, schedule)

    def _rule(self, slot: Location, rows: Ints, schedule: Any, block: Any) -> LoopRule | None:
        loops = _loops(self.probe, schedule, block)
        if loops is None:
            return None
        rule = LoopRule(loops=tuple(loops), inline=can_inline(schedule, block))
        shape = _shifted(rule)
        if shape not in self.checked:
            wishes = [len(loops), *self.rng.integers(ROOT, len(loops) + 1, size=PROBES - 1)]
            for row, wish in zip(rows, wishes, strict=True):
                answer = locate(*self.probe.at(slot, row), int(wish))
                if answer != _expected(rule, row, int(wish)):
                    return None
            self.checked.add(shape)
        return rule

    def _follows_a_move(self, space: DecisionSpace, slot: Location, row: Ints) -> bool:
        """Whether an earlier location moves a block that reads, at some remove, what this one
        makes: its loops then change with that decision."""
        earlier = [s for s in space.locations if s.column < slot.column]
        if not earlier:
            return False
        schedule = self.probe.before(earlier[0].instruction, row)
        try:
            here = self.probe.variable(schedule, slot.instruction, 0)
        except KeyError:  # a block that exists only after another has moved
            return True
        waiting, readers = [here], set[str]()
        while waiting:
            for consumer in schedule.get_consumers(waiting.pop()):
                name = block_name(schedule, consumer)
                if name not in readers:
                    readers.add(name)
                    waiting.append(consumer)
        return not readers.isdisjoint(name for _, name in self.moved[:-1])

    def _moves(self, slot: Location, row: Ints, schedule: Any, block: Any) -> MovedRule | None:
        """The moves followed, as TVM's answers for a row confirm; None where they cannot be."""
        try:
            if self.moves is None:
                self.moves = read_moves(self.probe, self.rng)
            self.moves.moved = self.moved
            self.moves.check()
        except Untold:
            return None
        blocks = self.moves.blocks.values()
        width = 2 + sum(max(len(b.loops), len(b.iterators)) for b in blocks)
        rule = MovedRule(moves=self.moves, column=slot.column, width=width)
        wishes = [width, int(self.rng.integers(INLINE, width))]
        agreed = all(locate(schedule, block, w) == _expected(rule, row, w) for w in wishes)
        return rule if agreed else None

    def _table(self, space: DecisionSpace, slot: Location, schedule: Any) -> LocationTable | None:
        """TVM's answers by earlier location and by which tile parts are longer than 1: nothing
        else of a tile decides which loops a block may move to."""
        tiles = [s for s in space.slots if isinstance(s, Tile) and s.column < slot.column]
        if sum(tile.parts for tile in tiles if tile.extent > 1) > MAX_OPEN_PARTS:
            return None
        offers: Asked[Offer] = Asked(
            capped=tuple(s.column + k for s in tiles for k in range(s.parts)),
            columns=tuple(s.column for s in space.locations if s.column < slot.column),
            ask=partial(self.probe.offered, slot),
        )
        return LocationTable(asked=offers, width=2 + _deepest(schedule))


def _shifted(rule: LoopRule) -> LoopRule:
    """The rule as if its columns began at 0."""
    first = min((c for loop in rule.loops for c in loop.columns), default=0)
    loops = [replace(one, columns=tuple(c - first for c in one.columns)) for one in rule.loops]
    return replace(rule, loops=tuple(loops))


def _expected(rule: Locator, row: Ints, wish: int) -> int:
    """What TVM answers when the rule holds: the wish, or the nearest offer before it."""
    offered = np.flatnonzero(rule.mask(row[None])[0]) + INLINE
    return max((int(v) for v in offered if v <= wish), default=ROOT)


def _loops(probe: Probe, schedule: Any, block: Any) -> list[ConsumerLoop] | None:
    """The loops around the consumers, each a product of columns; None when some are not."""
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
    sources = loop_columns(probe, schedule)
    loops = []
    for rv, loop in zip(schedule.get_loops(consumers[0])[:depth], nests[0], strict=False):
        columns = next((c for var, c in sources if var.same_as(loop.loop_var)), ())
        if not columns and not probe.referee.is_original(loop.loop_var):
            return None
        constant = 1 if columns else int(loop.extent)
        loops.append(
            ConsumerLoop(columns=columns, constant=constant, parallel=_is_parallel(schedule, rv))
        )
    return loops


def _is_parallel(schedule: Any, loop: Any) -> bool:
    ffi: Any = importlib.import_module("tvm_ffi")
    kind = ffi.get_global_func("s_tir.schedule.GetLoopIterType")(schedule, loop)
    return str(kind) == "S"


def _deepest(schedule: Any) -> int:
    """More loops than any consumer of a block can have, in any row."""
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    return sum(len(schedule.get_loops(block)) for block in blocks)
