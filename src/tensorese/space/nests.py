"""Reads a CUDA sketch: which columns run on threads, which lie inside each staged copy."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tensorese.language.constants import Constants
from tensorese.records.nouns import Sketch
from tensorese.space.slots import Slot, Tile

LOW = "meta_schedule.thread_extent_low_inclusive"
HIGH = "meta_schedule.thread_extent_high_inclusive"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A read of the tiled block, copied to shared memory inside a loop."""

    read: int
    compute_at: int
    """The instruction that places the copy."""
    inside: frozenset[int]
    """Columns whose loops the copy covers: those inside its loop, and all threads."""


@dataclass(kw_only=True)
class Nest:
    """The tiled block of a sketch."""

    get_loops: int
    """The instruction that lists its loops, just before tiling."""
    axes: list[tuple[int, ...]]
    """Columns of each of its iterators."""
    threads: tuple[int, ...] = ()
    low: int = 1
    high: int = 1 << 40
    stages: list[Stage] = field(default_factory=list)
    pipeline: tuple[int, ...] = ()
    """`software_pipeline_stage` of the loop the copies are in; empty without a pipeline."""
    pipelined: tuple[int, ...] = ()
    """Columns of that loop."""


def read_nest(sketch: Sketch, slots: tuple[Slot, ...], constants: Constants) -> Nest | str:
    """The one tiled block of a sketch, or why it cannot be read."""
    instructions, _ = json.loads(sketch.body)
    reader = _Reader(sketch, slots, constants)
    for index, (kind, inputs, attributes, outputs) in enumerate(instructions):
        handler = getattr(reader, f"_{kind.lower()}", None)
        if handler:
            handler(index, inputs, attributes, outputs)
    if reader.nest is None or reader.reorders != 1:
        return f"{reader.reorders} tiled blocks instead of one"
    return reader.nest


class _Reader:
    def __init__(self, sketch: Sketch, slots: tuple[Slot, ...], constants: Constants) -> None:
        self.constants = constants
        starts, column = {}, 0
        for instruction, length in sketch.slots:
            starts[instruction] = column
            column += max(1, length)
        tiles = {slot.column for slot in slots if isinstance(slot, Tile)}
        self.tiles = {i: c for i, c in starts.items() if c in tiles}
        self.columns: dict[str, int] = {}
        self.loops: dict[str, tuple[int, ...]] = {}
        self.listed: dict[str, tuple[int, list[str]]] = {}  # block: instruction, its loops
        self.copies: dict[str, int] = {}  # staged block: which read it copies
        self.order: list[str] = []
        self.reorders = 0
        self.bound: set[int] = set()
        self.nest: Nest | None = None

    def _getloops(self, index: int, inputs: list[Any], _: Any, outputs: list[str]) -> None:
        self.listed.setdefault(inputs[0], (index, outputs))

    def _sampleperfecttile(self, index: int, _: Any, __: Any, outputs: list[str]) -> None:
        first = self.tiles[index]
        self.columns.update({name: first + k for k, name in enumerate(outputs)})

    def _split(self, _: int, inputs: list[Any], __: Any, outputs: list[str]) -> None:
        parts = [self.columns.get(name) if isinstance(name, str) else None for name in inputs[1:]]
        for name, column in zip(outputs, parts, strict=True):
            if column is not None:
                self.loops[name] = (column,)

    def _reorder(self, _: int, inputs: list[str], __: Any, ___: Any) -> None:
        mine = {column for name in inputs for column in self.loops.get(name, ())}
        if not mine:  # a large elementwise kernel beside the tiled one, spread over blocks
            return
        self.reorders += 1
        self.order = list(inputs)
        for index, names in self.listed.values():
            # The tiled block is the one whose loops were split last before the reordering.
            axes = self._axes(names, mine)
            if axes:
                self.nest = Nest(get_loops=index, axes=axes)

    def _axes(self, names: list[str], mine: set[int]) -> list[tuple[int, ...]]:
        starts = sorted(c for c in self.tiles.values() if c in mine)
        if len(starts) != len(names):
            return []
        ends = [*starts[1:], max(mine) + 1]
        return [tuple(range(a, b)) for a, b in zip(starts, ends, strict=True)]

    def _fuse(self, _: int, inputs: list[str], __: Any, outputs: list[str]) -> None:
        if all(name in self.loops for name in inputs):
            self.loops[outputs[0]] = tuple(c for name in inputs for c in self.loops[name])
            if inputs[0] in self.order:
                at = self.order.index(inputs[0])
                self.order[at : at + len(inputs)] = [outputs[0]]

    def _bind(self, _: int, inputs: list[str], attributes: list[str], __: Any) -> None:
        columns = self.loops.get(inputs[0], ())
        if self.nest is None or not columns:
            return
        if attributes[0].startswith("threadIdx"):
            self.nest.threads += columns
        if not attributes[0].startswith("blockIdx"):
            self.bound.update(columns)

    def _cacheread(self, _: int, inputs: Any, attributes: list[Any], outputs: list[str]) -> None:
        if str(attributes[1]).startswith("shared"):
            self.copies[outputs[0]] = int(attributes[0])

    def _computeat(self, index: int, inputs: list[str], _: Any, __: Any) -> None:
        block, loop = inputs
        if block in self.copies and self.nest is not None and loop in self.order:
            inner = self.order[self.order.index(loop) + 1 :]
            inside = self.bound.union(*(self.loops[name] for name in inner))
            stage = Stage(read=self.copies[block], compute_at=index, inside=frozenset(inside))
            self.nest.stages.append(stage)

    def _annotate(self, index: int, inputs: list[Any], attributes: list[str], _: Any) -> None:
        if self.nest is None:
            return
        if attributes[0] == LOW:
            self.nest.low = self.constants[index]
        elif attributes[0] == HIGH:
            self.nest.high = self.constants[index]
        elif attributes[0] == "software_pipeline_stage":
            self.nest.pipeline = tuple(inputs[1])
            self.nest.pipelined = self.loops.get(inputs[0], ())
