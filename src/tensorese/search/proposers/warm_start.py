"""Where a search may start: the store's best programs of the task, or of tasks like it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from tensorese.arrays import Ints
from tensorese.records.nouns import Measurement, Program, Status, Workload
from tensorese.records.store import Store
from tensorese.search.contracts import DecisionRow, Proposal, TaskState
from tensorese.search.proposers.refit import refit_row, same_make

RELATIVES = 6  # tasks like this one whose programs are used
_NEIGHBOURS = 64  # tasks of any kind that are asked where no relative is known
FAR = 24.0  # doublings of shape, all dimensions together, from which a task is no relative

Origins: TypeAlias = dict[tuple[int, DecisionRow], str]
"""Origins of the chosen rows, by sketch and row."""


def seeds(state: TaskState, store: Store, n: int, *, seed: int = 0) -> list[Proposal]:
    """Up to `n` legal rows that are new to the task, the most promising first.

    Programs of the same workload come as they are (origin `store`); those of relatives, the same
    kind of operator on other shapes, are fitted to the extents here (`store:similar`). Other
    platforms and rows marked `test` are never looked at.
    """
    if n <= 0 or state.platform.name not in store.platforms():
        return []
    origins: Origins = {}
    _add_own(state, store, n, origins)
    if len(origins) < n:
        _add_relatives(state, store, n, origins, np.random.default_rng(seed))
    return [
        Proposal(sketch=sketch, row=row, origin=origin)
        for (sketch, row), origin in list(origins.items())[:n]
    ]


def own_rows(state: TaskState, programs: Sequence[Program], origin: str) -> list[Proposal]:
    """The rows of programs of this very task that are legal and new to it."""
    origins: Origins = {}
    for program in programs:
        place = state.place(program)
        if place is not None:
            _take(state, place[0], np.array(place[1], dtype=np.int64), origin, origins)
    return [Proposal(sketch=sketch, row=row, origin=origin) for sketch, row in origins]


def has_relative(state: TaskState, store: Store) -> bool:
    """Whether the task itself, or the same kind of operator on other shapes, was measured there."""
    known = store.best(state.platform.name, split="train")
    return state.workload.id in known or bool(_relatives(state, store))


def nearest(state: TaskState, store: Store, n: int, *, seed: int = 0) -> list[Proposal]:
    """Up to `n` rows for a task without relatives: the best programs of tasks that do most nearly
    the same, on as many numbers, wherever their decisions are the same in kind."""
    if n <= 0 or state.platform.name not in store.platforms():
        return []
    rng = np.random.default_rng(seed)
    best = store.best(state.platform.name, split="train")
    ranked = sorted(best.values(), key=lambda m: _unlikeness(state.workload, m.program.workload))
    origins: Origins = {}
    for measurement in ranked[:_NEIGHBOURS]:
        if len(origins) < n:
            _refit(state, measurement, origins, rng, "store:nearest")
    return [
        Proposal(sketch=sketch, row=row, origin=origin) for (sketch, row), origin in origins.items()
    ]


def _unlikeness(one: Workload, other: Workload) -> float:
    """Doublings between the numbers they touch, and more for every step that only one of them
    takes."""
    mine, theirs = (set(_kind(w).split("_")) for w in (one, other))
    apart = len(mine ^ theirs) / max(len(mine | theirs), 1)
    sizes = [sum(float(np.prod(a.shape)) for a in w.args) for w in (one, other)]
    return FAR * apart + abs(float(np.log2(max(sizes[0], 1) / max(sizes[1], 1))))


def _fastest(state: TaskState, store: Store, workload: str, n: int) -> list[Measurement]:
    """The fastest programs of a workload on this platform, each once."""
    valid = store.measurements(
        platform=state.platform.name, workload=workload, status=Status.OK, split="train"
    )
    best: dict[str, Measurement] = {}
    for measurement in sorted(valid, key=lambda m: m.latency):
        best.setdefault(measurement.program.id, measurement)
    return list(best.values())[:n]


def _add_own(state: TaskState, store: Store, n: int, origins: Origins) -> None:
    for measurement in _fastest(state, store, state.workload.id, n + len(state.seen)):
        place = state.place(measurement.program)
        if place is not None and len(origins) < n:
            _take(state, place[0], np.array(place[1], dtype=np.int64), "store", origins)


def _add_relatives(
    state: TaskState,
    store: Store,
    n: int,
    origins: Origins,
    rng: np.random.Generator,
) -> None:
    relatives = _relatives(state, store)
    each = [_fastest(state, store, workload, n) for workload in relatives]
    # The nearest relative's best first, then the next one's: ranks in turn.
    for rank in range(n):
        for programs in each:
            if len(origins) >= n:
                return
            if rank < len(programs):
                _refit(state, programs[rank], origins, rng)


def _relatives(state: TaskState, store: Store) -> list[str]:
    """Ids of the nearest workloads with a valid program on this platform."""
    best = store.best(state.platform.name, split="train")
    gaps = {
        other: gap
        for other, measurement in best.items()
        if other != state.workload.id
        and (gap := shape_distance(state.workload, measurement.program.workload)) < FAR
    }
    return sorted(gaps, key=lambda other: (gaps[other], other))[:RELATIVES]


def shape_distance(one: Workload, other: Workload) -> float:
    """Doublings between the shapes; infinite unless ranks, types and kind of operator agree."""
    if _kind(one) != _kind(other) or len(one.args) != len(other.args):
        return float("inf")
    total = 0.0
    for mine, theirs in zip(one.args, other.args, strict=True):
        if mine.dtype != theirs.dtype or len(mine.shape) != len(theirs.shape):
            return float("inf")
        pairs = zip(mine.shape, theirs.shape, strict=True)
        total += sum(abs(float(np.log2(max(a, 1) / max(b, 1)))) for a, b in pairs)
    return total


def _kind(workload: Workload) -> str:
    """The names of its blocks without the numbers a front end adds."""
    return "_".join(part.rstrip("0123456789") for part in workload.operator.split("_"))


def _refit(
    state: TaskState,
    measurement: Measurement,
    origins: Origins,
    rng: np.random.Generator,
    origin: str = "store:similar",
) -> None:
    """Into the very sketch if the task has it, else into the first that decides the same."""
    sketch = measurement.program.sketch
    spaces = state.space.sketches
    same = state.sketch_like(sketch)
    alike = [i for i, space in enumerate(spaces) if same_make(space, sketch.slots)]
    for index in ([same] if same is not None else alike)[:1]:
        if spaces[index].covered:
            row = refit_row(spaces[index], measurement.program.decisions, rng)
            if row is not None:
                _take(state, index, row, origin, origins)


def _take(state: TaskState, sketch: int, row: Ints, origin: str, origins: Origins) -> None:
    space = state.space.sketches[sketch]
    place = (sketch, tuple(int(value) for value in row))
    if place not in state.seen and (not space.covered or bool(space.legal(row[None])[0])):
        origins.setdefault(place, origin)
