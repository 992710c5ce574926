"""Reads a CUDA sketch: which columns run on threads, which lie inside each staged copy."""

from __future__ import annotations

from dataclasses import dataclass, field

from tensorese.language.constants import Constants
from tensorese.language.trace import Instruction, read_trace
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
    reader = _Reader(slots, constants)
    for index, one in enumerate(read_trace(sketch.body, sketch.slots)):
        handler = getattr(reader, f"_{one.kind.lower()}", None)
        if handler:
            handler(index, one)
    if reader.nest is None or reader.reorders != 1:
        return f"{reader.reorders} tiled blocks instead of one"
    return reader.nest


class _Reader:
    def __init__(self, slots: tuple[Slot, ...], constants: Constants) -> None:
        self.constants = constants
        self.tiles = [slot.column for slot in slots if isinstance(slot, Tile)]
        self.columns: dict[str, int] = {}
        self.loops: dict[str, tuple[int, ...]] = {}
        self.listed: dict[str, tuple[int, tuple[str, ...]]] = {}  # block: instruction, its loops
        self.copies: dict[str, int] = {}  # staged block: which read it copies
        self.order: list[str] = []
        self.reorders = 0
        self.bound: set[int] = set()
        self.nest: Nest | None = None

    def _getloops(self, index: int, one: Instruction) -> None:
        self.listed.setdefault(one.inputs[0], (index, one.outputs))

    def _sampleperfecttile(self, index: int, one: Instruction) -> None:
        self.columns.update(zip(one.outputs, one.columns or (), strict=True))

    def _split(self, index: int, one: Instruction) -> None:
        factors = one.inputs[1:]
        parts = [self.columns.get(name) if isinstance(name, str) else None for name in factors]
        for name, column in zip(one.outputs, parts, strict=True):
            if column is not None:
                self.loops[name] = (column,)

    def _reorder(self, index: int, one: Instruction) -> None:
        mine = {column for name in one.inputs for column in self.loops.get(name, ())}
        if not mine:  # a large elementwise kernel beside the tiled one, spread over blocks
            return
        self.reorders += 1
        self.order = list(one.inputs)
        for place, names in self.listed.values():
            # The tiled block is the one whose loops were split last before the reordering.
            axes = self._axes(names, mine)
            if axes:
                self.nest = Nest(get_loops=place, axes=axes)

    def _axes(self, names: tuple[str, ...], mine: set[int]) -> list[tuple[int, ...]]:
        starts = sorted(column for column in self.tiles if column in mine)
        if len(starts) != len(names):
            return []
        ends = [*starts[1:], max(mine) + 1]
        return [tuple(range(a, b)) for a, b in zip(starts, ends, strict=True)]

    def _fuse(self, index: int, one: Instruction) -> None:
        inputs, fused = one.inputs, one.outputs[0]
        if all(name in self.loops for name in inputs):
            self.loops[fused] = tuple(c for name in inputs for c in self.loops[name])
            if inputs[0] in self.order:
                at = self.order.index(inputs[0])
                self.order[at : at + len(inputs)] = [fused]

    def _bind(self, index: int, one: Instruction) -> None:
        columns = self.loops.get(one.inputs[0], ())
        if self.nest is None or not columns:
            return
        thread = one.attributes[0]
        if thread.startswith("threadIdx"):
            self.nest.threads += columns
        if not thread.startswith("blockIdx"):
            self.bound.update(columns)

    def _cacheread(self, index: int, one: Instruction) -> None:
        if str(one.attributes[1]).startswith("shared"):
            self.copies[one.outputs[0]] = int(one.attributes[0])

    def _computeat(self, index: int, one: Instruction) -> None:
        block, loop = one.inputs
        if block in self.copies and self.nest is not None and loop in self.order:
            inner = self.order[self.order.index(loop) + 1 :]
            inside = self.bound.union(*(self.loops[name] for name in inner))
            stage = Stage(read=self.copies[block], compute_at=index, inside=frozenset(inside))
            self.nest.stages.append(stage)

    def _annotate(self, index: int, one: Instruction) -> None:
        if self.nest is None:
            return
        key = one.attributes[0]
        if key == LOW:
            self.nest.low = self.constants[index]
        elif key == HIGH:
            self.nest.high = self.constants[index]
        elif key == "software_pipeline_stage":
            self.nest.pipeline = tuple(one.inputs[1])
            self.nest.pipelined = self.loops.get(one.inputs[0], ())
