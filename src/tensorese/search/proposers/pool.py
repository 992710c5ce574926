"""Scored rows of one task on their way to proposals: what is known leaves, the rest is picked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Floats64, Ints
from tensorese.search.contracts import DecisionRow, Proposal, Ranker, TaskState
from tensorese.space.decisions import DecisionSpace
from tensorese.space.slots import Tile
from tensorese.space.tiles import Bools

Keys = npt.NDArray[np.uint64]

_ODD = np.random.default_rng(64).integers(1 << 62, size=4096, dtype=np.uint64) * 2 + 1


def row_keys(rows: Ints) -> Keys:
    """A 64-bit hash a row, so that sets of rows are compared at once; `[n]`."""
    mixed = rows.astype(np.uint64) * _ODD[: rows.shape[1]]
    keys: Keys = (mixed ^ (mixed >> np.uint64(29))).sum(1, dtype=np.uint64)
    return keys


def distinct(rows: Ints) -> tuple[Ints, Ints]:
    """Each row once, in the order they first appear, and where that was."""
    _, first = np.unique(row_keys(rows), return_index=True)
    first = np.sort(first)
    return rows[first], first


def unlike(rows: Ints, others: Ints) -> Ints:
    """The distinct rows that are not among the others."""
    rows, _ = distinct(rows)
    return rows[~np.isin(row_keys(rows), row_keys(others))]


def new_rows(state: TaskState, sketch: int, rows: Ints) -> Ints:
    """The distinct rows that the task has not seen, in the order they first appear."""
    seen = [row for index, row in state.seen if index == sketch]
    known = np.array(seen, dtype=np.int64).reshape(len(seen), rows.shape[1])
    return unlike(rows, known)


def measured_best(state: TaskState, sketch: int, n: int) -> Ints:
    """The sketch's fastest measured rows, fastest first."""
    timed: list[tuple[float, DecisionRow]] = []
    for measurement in state.measurements:
        place = state.place(measurement.program)
        if place is not None and place[0] == sketch and measurement.latency > 0:
            timed.append((measurement.latency, place[1]))
    best = [row for _, row in sorted(timed)[:n]]
    width = state.space.sketches[sketch].sketch.n_decisions
    return np.array(best, dtype=np.int64).reshape(len(best), width)


def score(state: TaskState, ranker: Ranker, sketch: int, rows: Ints) -> Floats64:
    if not len(rows):
        return np.zeros(0)
    record = state.space.sketches[sketch].sketch
    return np.asarray(ranker.score(state.workload, state.platform.name, record, rows), np.float64)


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Distinct rows of one sketch with their scores."""

    sketch: int
    rows: Ints
    scores: Floats64

    def new_to(self, state: TaskState) -> Scored:
        """Without what the task has seen."""
        fresh = np.isin(row_keys(self.rows), row_keys(new_rows(state, self.sketch, self.rows)))
        return Scored(sketch=self.sketch, rows=self.rows[fresh], scores=self.scores[fresh])


def embed(space: DecisionSpace, rows: Ints) -> Floats64:
    """Columns whose L1 distance is `space.variation.distance`."""
    if not space.slots:  # not covered: a column that differs counts as 1 at most
        return np.minimum(np.asarray(rows, np.float64), 1.0)
    parts: list[Floats64] = [np.zeros((len(rows), 0))]
    for slot in space.slots:
        here = rows[:, slot.column : slot.column + slot.width]
        if isinstance(slot, Tile):
            parts.append(np.log2(here) / 2)
        else:
            values = np.unique(here)
            parts.append((here == values[None, :]) / 2)
    return np.hstack(parts)


def picked_from(n: int) -> int:
    """How many of the best rows `n` picks are chosen among."""
    return max(16 * n, 256)


def pick(
    state: TaskState, scored: Iterable[Scored], n: int, origin: str, *, apart: float
) -> list[Proposal]:
    """The `n` best by score, of one sketch no two closer than `apart` while there are others."""
    groups = [group for group in scored if len(group.rows)]
    if not groups or n <= 0:
        return []
    scores = np.concatenate([group.scores for group in groups])
    of = np.concatenate([np.full(len(g.rows), i) for i, g in enumerate(groups)])
    at = np.concatenate([np.arange(len(g.rows)) for g in groups])
    order = np.argsort(-scores, kind="stable")[: picked_from(n)]
    scores, of, at = scores[order], of[order], at[order]
    chosen = _spread(state, groups, of, at, n, apart)
    return [
        Proposal(
            sketch=groups[of[k]].sketch,
            row=tuple(groups[of[k]].rows[at[k]].tolist()),
            origin=origin,
            score=float(scores[k]),
        )
        for k in chosen
    ]


def _spread(
    state: TaskState, groups: list[Scored], of: Ints, at: Ints, n: int, apart: float
) -> list[int]:
    """Positions, best first, each at least `apart` from those before; then the passed over.

    Where TVM has to be asked whether a row is legal, it is asked here, about these alone: all at
    once, and again about what takes the place of those it refuses.
    """
    places = [
        embed(state.space.sketches[g.sketch], g.rows[at[of == i]]) for i, g in enumerate(groups)
    ]
    within = np.zeros(len(of), dtype=np.int64)
    for i in range(len(groups)):
        within[of == i] = np.arange(int((of == i).sum()))
    gaps = [_gap(state.space.sketches[g.sketch], apart) for g in groups]
    left = np.arange(len(of))
    while True:
        chosen = _greedy(places, of, within, left, n, gaps)
        refused = _refused(state, groups, of, at, chosen)
        if not len(refused):
            return sorted(chosen.tolist())
        left = left[~np.isin(left, refused)]


def _gap(space: DecisionSpace, apart: float) -> float:
    """Among choices alone, one that differs makes another program: there is nothing between."""
    return apart if any(isinstance(slot, Tile) for slot in space.slots) else min(apart, 1.0)


def _greedy(
    places: list[Floats64], of: Ints, within: Ints, left: Ints, n: int, gaps: list[float]
) -> Ints:
    near: list[Bools] = [np.zeros(len(place), dtype=np.bool_) for place in places]
    chosen: list[int] = []
    passed: list[int] = []
    for k in left.tolist():
        if len(chosen) == n:
            break
        group, me = int(of[k]), int(within[k])
        if near[group][me]:
            passed.append(k)
            continue
        chosen.append(k)
        near[group] |= np.abs(places[group] - places[group][me]).sum(1) < gaps[group]
    return np.array(chosen + passed[: n - len(chosen)], dtype=np.int64)


def _refused(state: TaskState, groups: list[Scored], of: Ints, at: Ints, chosen: Ints) -> Ints:
    """Those of the chosen that TVM, where it decides, does not pass."""
    refused = [chosen[:0]]
    for index, group in enumerate(groups):
        mine = chosen[of[chosen] == index]
        refused.append(mine[~are_legal(state, group.sketch, group.rows[at[mine]])])
    return np.concatenate(refused)


def are_legal(state: TaskState, sketch: int, rows: Ints) -> Bools:
    """Of rows that `TaskState.computed` calls legal: TVM is asked where that is not enough."""
    space = state.space.sketches[sketch]
    if state.computed(sketch) is space:
        return np.ones(len(rows), dtype=np.bool_)
    return space.legal(rows)
