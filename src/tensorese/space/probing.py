"""One sketch of a task, replayed by TVM row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tensorese.arrays import Ints
from tensorese.language.primitive import fill_slots
from tensorese.records.nouns import Sketch
from tensorese.space.replay import SCHEDULE_ERRORS, ScheduleRules
from tensorese.space.slots import INLINE, ROOT, Location, Slot

Offer: TypeAlias = tuple[int, ...]
"""Locations, ascending."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One sketch of a referee, replayed row by row."""

    referee: ScheduleRules
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

    def builds(self, row: Ints) -> bool:
        """The same, and TVM lowers it."""
        try:
            done = self.referee.replay(self.index, self.values(row))
        except SCHEDULE_ERRORS:
            return False
        return done.passed and self.referee.lowers(done.schedule.mod)

    def at(self, slot: Location, row: Ints) -> tuple[Any, Any]:
        """The schedule just before a location is decided, and the block it is decided for."""
        schedule = self.before(slot.instruction, row)
        return schedule, self.variable(schedule, slot.instruction, 0)

    def offered(self, slot: Location, row: Ints) -> Offer:
        """The locations TVM accepts after this row's earlier decisions, ascending."""
        return offered(*self.at(slot, row))

    def variable(self, schedule: Any, instruction: int, position: int) -> Any:
        """What stands, in this replay, for an input of the sketch's instruction."""
        mine = self.referee.instructions[self.index]
        name = mine[instruction].inputs[position]
        for theirs, ours in zip(mine, schedule.trace.insts, strict=False):
            for output, here in zip(theirs.outputs, ours.outputs, strict=True):
                if output.same_as(name):
                    return here
        raise KeyError(f"instruction {instruction} has no input {position}")


def block_name(schedule: Any, block: Any) -> str:
    return str(schedule.get(block).name_hint)


def can_inline(schedule: Any, block: Any) -> bool:
    """Found by doing it, on a copy."""
    try:
        schedule.copy().compute_inline(block)
    except SCHEDULE_ERRORS:
        return False
    return True


def locate(schedule: Any, block: Any, wish: int) -> int:
    """Where TVM puts the block when asked for the wish; the schedule stays as it is."""
    schedule.sample_compute_location(block, decision=wish)
    trace = schedule.trace
    return int(trace.decisions[trace.insts[-1]])


def offered(schedule: Any, block: Any) -> Offer:
    """Asked for a location that it does not accept, TVM answers with the nearest one before it."""
    locations: list[int] = []
    wish = _depth(schedule, block)
    while wish >= ROOT:
        locations.append(locate(schedule, block, wish))
        wish = locations[-1] - 1
    if locate(schedule, block, INLINE) == INLINE:
        locations.append(INLINE)
    return tuple(reversed(locations))


def _depth(schedule: Any, block: Any) -> int:
    consumers = schedule.get_consumers(block)
    return max((len(schedule.get_loops(consumer)) for consumer in consumers), default=0)
