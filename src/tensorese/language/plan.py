"""The plan of a MetaSchedule trace, in terms of the module it schedules: which block is tiled,
which decision is which part of which of its loops, in what order they run, what is computed where.

`tiling` reads as much of a plan as both dialects share; this knows blocks and loops by name, so
that it can be read together with the module's accesses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from tensorese.language.trace import Instruction, Slots, Trace, read_trace


class Tiled(NamedTuple):
    loop: int
    """Which loop of the block, counted from outside."""
    parts: tuple[int, ...]
    """Decisions, outer first."""


class Located(NamedTuple):
    decision: int
    block: str
    """The block that moves; empty where the trace does not name it."""


class Factored(NamedTuple):
    """A reduction cut in two, one part of it made a loop of its own."""

    parts: tuple[int, ...]
    """Decisions, outer first."""
    inner: bool
    """Whether it is the inner part."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    block: str = ""
    tiles: tuple[Tiled, ...] = ()
    """Of the block with the deepest tiles."""
    order: tuple[tuple[int, int], ...] = ()
    """`(loop, part)` from outside in."""
    attached: int = -1
    """Place in `order` of the loop that what follows the block is computed in; -1: none."""
    cached: bool = False
    """Whether the block writes to a buffer of its own first."""
    parallel: bool = False
    """Whether outer loops are dealt to the cores of a CPU; how many there are is the platform's."""
    unroll: int | None = None
    locations: tuple[Located, ...] = ()
    factored: tuple[Factored, ...] = ()
    inlined: tuple[str, ...] = ()
    """Blocks that the trace puts into their users."""


def read_plan(dialect: str, body: str, slots: Slots) -> Plan:
    if dialect != "metaschedule":
        return Plan()
    try:
        return _Reader().read(read_trace(body, slots))
    except (ValueError, KeyError, TypeError, IndexError):
        return Plan()  # a trace of another shape than ours


class _Reader:
    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.loops: dict[str, tuple[str, int]] = {}
        """Of a loop variable: its block, and which loop of it."""
        self.tiles: dict[str, list[Tiled]] = {}
        self.tile_of: dict[str, tuple[int, ...]] = {}
        self.parts: dict[str, tuple[str, int, int]] = {}
        """Of a loop variable made by a tile: block, loop, part."""
        self.orders: dict[str, list[tuple[int, int]]] = {}
        self.attached: dict[str, tuple[int, int]] = {}
        self.cached: set[str] = set()
        self.sampled: dict[str, int] = {}
        self.annotated: dict[str, Any] = {}
        self.locations: list[Located] = []
        self.factored: list[Factored] = []
        self.inlined: list[str] = []

    def read(self, trace: Trace) -> Plan:
        for one in trace:
            handler = getattr(self, f"_{one.kind.lower()}", None)
            if handler:
                handler(one)
        deepest = {name: max(len(t.parts) for t in tiles) for name, tiles in self.tiles.items()}
        block = max(deepest, key=lambda name: deepest[name], default="")
        order = self.orders.get(block, [])
        attached = self.attached.get(block)
        return Plan(
            block=block,
            tiles=tuple(self.tiles.get(block, ())),
            order=tuple(order),
            attached=order.index(attached) if attached in order else -1,
            cached=block in self.cached,
            locations=tuple(self.locations),
            factored=tuple(self.factored),
            inlined=tuple(self.inlined),
            **self.annotated,
        )

    def _getsblock(self, one: Instruction) -> None:
        self.names[one.outputs[0]] = str(one.attributes[0])

    _getblock = _getsblock

    def _getloops(self, one: Instruction) -> None:
        name = self.names.get(one.inputs[0], one.inputs[0])
        self.loops.update({loop: (name, number) for number, loop in enumerate(one.outputs)})

    def _sampleperfecttile(self, one: Instruction) -> None:
        if one.columns is None:
            return
        self.tile_of[one.inputs[0]] = one.columns
        if one.inputs[0] in self.loops and len(one.columns) == len(one.outputs):
            name, number = self.loops[one.inputs[0]]
            self.tiles.setdefault(name, []).append(Tiled(number, one.columns))

    def _samplecategorical(self, one: Instruction) -> None:
        if one.columns is not None:
            self.sampled[one.outputs[0]] = one.columns[0]

    def _samplecomputelocation(self, one: Instruction) -> None:
        if one.columns is not None:
            self.locations.append(Located(one.columns[0], self.names.get(one.inputs[0], "")))

    def _split(self, one: Instruction) -> None:
        loop, out = one.inputs[0], one.outputs
        if loop in self.loops:
            name, number = self.loops[loop]
            self.parts.update({inner: (name, number, part) for part, inner in enumerate(out)})
        if loop in self.tile_of and len(out) == 2:
            self.tile_of.update(dict.fromkeys(out, self.tile_of[loop]))
            self.parts.setdefault(out[1], ("", -1, 1))

    def _rfactor(self, one: Instruction) -> None:
        loop = one.inputs[0]
        if loop in self.tile_of:
            inner = self.parts.get(loop, ("", 0, 0))[2] == 1
            self.factored.append(Factored(self.tile_of[loop], inner))
            for tiles in self.tiles.values():
                tiles[:] = [tile for tile in tiles if tile.parts != self.tile_of[loop]]
            self.tiles = {name: tiles for name, tiles in self.tiles.items() if tiles}

    def _computeinline(self, one: Instruction) -> None:
        if one.inputs[0] in self.names:
            self.inlined.append(self.names[one.inputs[0]])

    def _reorder(self, one: Instruction) -> None:
        for loop in one.inputs:
            if loop in self.parts:
                name, number, part = self.parts[loop]
                self.orders.setdefault(name, []).append((number, part))

    def _reversecomputeat(self, one: Instruction) -> None:
        if one.inputs[1] in self.parts:
            name, number, part = self.parts[one.inputs[1]]
            self.attached[name] = (number, part)

    def _cachewrite(self, one: Instruction) -> None:
        self.cached.add(self.names.get(one.inputs[0], one.inputs[0]))

    def _annotate(self, one: Instruction) -> None:
        key = str(one.attributes[0])
        if key == "meta_schedule.parallel":
            self.annotated["parallel"] = True
        elif key.startswith("meta_schedule.unroll") and one.inputs[1] in self.sampled:
            self.annotated["unroll"] = self.sampled[one.inputs[1]]
