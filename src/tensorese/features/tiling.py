"""How a sketch cuts its main loops: which decision is which level of which tile.

Both dialects write the same plan down in their own way: spatial axes cut in five on a GPU (grid,
virtual threads, threads, two inner levels) and in four on a CPU, reductions in three or two, a
vector width per staged operand, an unroll limit, and loops of small stages cut into groups of
threads. Everything is read from structure: no name of a block or an operator is looked at.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from tensorese.language.trace import Trace, read_trace

Slots: TypeAlias = Sequence[tuple[int, int]]

GPU_LEVELS = 5


class Axis(NamedTuple):
    """Decision indices of the levels, outer first; `extent` where the outermost is left out."""

    extent: int | None
    levels: tuple[int, ...]


class Group(NamedTuple):
    """A small stage's loop cut into groups of threads: the decision, and the extent if known."""

    threads: int
    extent: int | None


@dataclass(frozen=True, kw_only=True)
class Tiling:
    spatial: tuple[Axis, ...] = ()
    reduction: tuple[Axis, ...] = ()
    vectors: tuple[int, ...] = ()
    """Decisions: elements a thread stages at once, by operand, the first operand first."""
    unroll: int | None = None
    groups: tuple[Group, ...] = ()
    on_gpu: bool = False


def read_tiling(dialect: str, body: str, slots: Slots) -> Tiling:
    """What the sketch shows; an empty tiling where it shows none of it."""
    if dialect != "ansor":
        return _read_trace(read_trace(body, slots))
    places: dict[int, list[tuple[int, ...]]] = {}
    at = 0
    for instruction, length in slots:
        count = 1 if length < 0 else length
        places.setdefault(instruction, []).append(tuple(range(at, at + count)))
        at += count
    return _read_steps(json.loads(body), places)


Places: TypeAlias = dict[int, list[tuple[int, ...]]]


def _read_steps(steps: list[Any], places: Places) -> Tiling:
    cut = [(step, places[k]) for k, step in enumerate(steps) if step[0] == "SP" and k in places]
    axes = [Axis(step[3], at[-1]) for step, at in cut if type(step[3]) is int and step[4] is None]
    staged = [at[-1][0] for step, at in cut if step[3] is None and step[4] is None and at[-1]]
    pragmas = [places[k][0][0] for k, step in enumerate(steps) if step[0] == "PR" and k in places]
    unroll = pragmas[0] if pragmas else None
    most = max((len(axis.levels) for axis in axes), default=0)
    if most < 3:
        fused = [Group(at[-1][0], None) for step, at in cut if len(at) == 2 and len(at[-1]) == 1]
        plain = [Group(axis.levels[0], axis.extent) for axis in axes if len(axis.levels) == 1]
        return Tiling(unroll=unroll, groups=(*fused, *plain), on_gpu=True)
    return Tiling(
        spatial=tuple(axis for axis in axes if len(axis.levels) == most),
        reduction=tuple(axis for axis in axes if len(axis.levels) < most),
        vectors=tuple(reversed(staged)),  # caches are made for the last operand first
        unroll=unroll,
        on_gpu=most + 1 >= GPU_LEVELS,
    )


def _read_trace(trace: Trace) -> Tiling:
    tiles: list[Axis] = []
    chosen: dict[str, int] = {}
    vectors: list[int] = []
    groups: list[Group] = []
    unroll: int | None = None
    for one in trace:
        if one.kind == "SamplePerfectTile" and one.columns is not None:
            tiles.append(Axis(None, one.columns))
        elif one.kind == "SampleCategorical" and one.columns is not None:
            chosen[one.outputs[0]] = one.columns[0]
        last = one.inputs[-1] if one.inputs and isinstance(one.inputs[-1], str) else ""
        if one.kind == "Annotate" and last in chosen:
            if one.attributes[0] == "meta_schedule.cooperative_fetch":
                vectors.append(chosen[last])
            elif one.attributes[0].startswith("meta_schedule.unroll"):
                unroll = chosen[last]
        elif one.kind == "Split" and last in chosen:
            groups.append(Group(chosen[last], None))
    most = max((len(tile.levels) for tile in tiles), default=0)
    return Tiling(
        spatial=tuple(tile for tile in tiles if len(tile.levels) == most),
        reduction=tuple(tile for tile in tiles if len(tile.levels) < most),
        vectors=tuple(vectors),
        unroll=unroll,
        groups=tuple(groups),
        on_gpu=most >= GPU_LEVELS or not tiles,
    )
