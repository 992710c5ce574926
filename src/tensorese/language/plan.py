"""The plan of a MetaSchedule trace, in terms of the module it schedules: which block is tiled,
which decision is which part of which of its loops, in what order they run, what is computed where.

`tiling` reads as much of a plan as both dialects share; this knows blocks and loops by name, so
that it can be read together with the module's accesses.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

Slots: TypeAlias = Sequence[tuple[int, int]]


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
        return _Reader(slots).read(json.loads(body)[0])
    except (ValueError, KeyError, TypeError, IndexError):
        return Plan()  # a trace of another shape than ours


class _Reader:
    def __init__(self, slots: Slots) -> None:
        self.holes: dict[int, tuple[int, ...]] = {}
        at = 0
        for instruction, length in slots:
            count = 1 if length < 0 else length
            self.holes[instruction] = tuple(range(at, at + count))
            at += count
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
        self.found: dict[str, Any] = {}
        self.locations: list[Located] = []
        self.factored: list[Factored] = []
        self.inlined: list[str] = []

    def read(self, instructions: list[Any]) -> Plan:
        for k, (kind, inputs, attributes, outputs) in enumerate(instructions):
            handler = getattr(self, f"_{kind.lower()}", None)
            if handler:
                handler(k, inputs, attributes, outputs)
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
            **self.found,
        )

    def _getsblock(self, k: int, inputs: list[Any], attributes: list[Any], out: list[str]) -> None:
        self.names[out[0]] = str(attributes[0])

    _getblock = _getsblock

    def _getloops(self, k: int, inputs: list[Any], attributes: list[Any], out: list[str]) -> None:
        name = self.names.get(inputs[0], inputs[0])
        self.loops.update({loop: (name, number) for number, loop in enumerate(out)})

    def _sampleperfecttile(
        self, k: int, inputs: list[Any], attributes: list[Any], out: list[str]
    ) -> None:
        if k not in self.holes:
            return
        self.tile_of[inputs[0]] = self.holes[k]
        if inputs[0] in self.loops and len(self.holes[k]) == len(out):
            name, number = self.loops[inputs[0]]
            self.tiles.setdefault(name, []).append(Tiled(number, self.holes[k]))

    def _samplecategorical(
        self, k: int, inputs: list[Any], attributes: list[Any], out: list[str]
    ) -> None:
        if k in self.holes:
            self.sampled[out[0]] = self.holes[k][0]

    def _samplecomputelocation(
        self, k: int, inputs: list[Any], attributes: list[Any], out: list[str]
    ) -> None:
        if k in self.holes:
            self.locations.append(Located(self.holes[k][0], self.names.get(inputs[0], "")))

    def _split(self, k: int, inputs: list[Any], attributes: list[Any], out: list[str]) -> None:
        if inputs[0] in self.loops:
            name, number = self.loops[inputs[0]]
            self.parts.update({loop: (name, number, part) for part, loop in enumerate(out)})
        if inputs[0] in self.tile_of and len(out) == 2:
            self.tile_of.update(dict.fromkeys(out, self.tile_of[inputs[0]]))
            self.parts.setdefault(out[1], ("", -1, 1))

    def _rfactor(self, k: int, inputs: list[Any], attributes: list[Any], out: list[str]) -> None:
        if inputs[0] in self.tile_of:
            inner = self.parts.get(inputs[0], ("", 0, 0))[2] == 1
            self.factored.append(Factored(self.tile_of[inputs[0]], inner))
            for tiles in self.tiles.values():
                tiles[:] = [tile for tile in tiles if tile.parts != self.tile_of[inputs[0]]]
            self.tiles = {name: tiles for name, tiles in self.tiles.items() if tiles}

    def _computeinline(
        self, k: int, inputs: list[Any], attributes: list[Any], out: list[str]
    ) -> None:
        if inputs[0] in self.names:
            self.inlined.append(self.names[inputs[0]])

    def _reorder(self, k: int, inputs: list[Any], attributes: list[Any], out: list[str]) -> None:
        for loop in inputs:
            if loop in self.parts:
                name, number, part = self.parts[loop]
                self.orders.setdefault(name, []).append((number, part))

    def _reversecomputeat(
        self, k: int, inputs: list[Any], attributes: list[Any], out: list[str]
    ) -> None:
        if inputs[1] in self.parts:
            name, number, part = self.parts[inputs[1]]
            self.attached[name] = (number, part)

    def _cachewrite(self, k: int, inputs: list[Any], attributes: list[Any], out: list[str]) -> None:
        self.cached.add(self.names.get(inputs[0], inputs[0]))

    def _annotate(self, k: int, inputs: list[Any], attributes: list[Any], out: list[str]) -> None:
        if attributes[0] == "meta_schedule.parallel":
            self.found["parallel"] = True
        elif str(attributes[0]).startswith("meta_schedule.unroll") and inputs[1] in self.sampled:
            self.found["unroll"] = self.sampled[inputs[1]]
