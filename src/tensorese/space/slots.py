"""The typed decisions of a sketch: tiles, choices and compute locations, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from tensorese.arrays import Ints
from tensorese.language.trace import Trace, read_trace
from tensorese.records.nouns import Sketch
from tensorese.space.tiles import Bools, SpaceError, factorisations

INLINE, ROOT = -2, -1  # the two locations that are no loop


@dataclass(frozen=True, kw_only=True)
class Tile:
    """`parts` columns whose product is `extent`, the last at most `limit` (-1: no limit)."""

    column: int
    extent: int
    parts: int
    limit: int

    @property
    def width(self) -> int:
        return self.parts

    @cached_property
    def table(self) -> Ints:
        return factorisations(self.extent, self.parts, self.limit)

    def holds(self, rows: Ints) -> Bools:
        part = rows[:, self.column : self.column + self.parts]
        fits: Bools = (part >= 1).all(1) & (part.prod(1) == self.extent)
        return fits & (part[:, -1] <= self.limit) if self.limit >= 0 else fits


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One column: the index of an option; `options` are what the indices stand for."""

    column: int
    options: tuple[int, ...]
    purpose: str
    """The annotation or primitive the option ends in: `meta_schedule.unroll_explicit`, `Split`."""

    @property
    def width(self) -> int:
        return 1

    @cached_property
    def table(self) -> Ints:
        return np.arange(len(self.options), dtype=np.int64)[:, None]

    def holds(self, rows: Ints) -> Bools:
        value = rows[:, self.column]
        return (value >= 0) & (value < len(self.options))


@dataclass(frozen=True, kw_only=True)
class Location:
    """One column: inline (-2), root (-1) or the index of a consumer's loop; its domain depends
    on the decisions before it."""

    column: int
    instruction: int

    @property
    def width(self) -> int:
        return 1


Slot: TypeAlias = Tile | Choice | Location


def typed_slots(sketch: Sketch, decisions: Sequence[int]) -> tuple[Slot, ...]:
    """The slots of a sketch; `decisions` of any one program give the tiles' extents."""
    trace = read_trace(sketch.body, sketch.slots)
    slots: list[Slot] = []
    column = 0
    for index, length in sketch.slots:
        one = trace[index]
        if one.kind == "SamplePerfectTile":
            part = decisions[column : column + length]
            extent = int(np.prod(part, dtype=np.int64))
            slots.append(Tile(column=column, extent=extent, parts=length, limit=one.attributes[1]))
        elif one.kind == "SampleCategorical":
            purpose = _purpose(trace, one.outputs[0])
            slots.append(Choice(column=column, options=one.attributes[0], purpose=purpose))
        elif one.kind == "SampleComputeLocation":
            slots.append(Location(column=column, instruction=index))
        else:
            raise SpaceError(
                "a decision must be a perfect tile, a choice or a compute location, "
                f"but got {one.kind}; draw this sketch by replay"
            )
        column += max(1, length)
    return tuple(slots)


def _purpose(trace: Trace, variable: str) -> str:
    for one in trace:
        if variable in one.inputs:
            return str(one.attributes[0]) if one.kind == "Annotate" else one.kind
    return ""
