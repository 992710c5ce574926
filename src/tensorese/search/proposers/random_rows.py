"""Random rows of any sketch: drawn on integers, or by replay where those do not decide."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Set

import numpy as np

from tensorese.arrays import Floats64, Ints
from tensorese.search.contracts import DecisionRow, Proposal, TaskState
from tensorese.search.proposers.pool import are_legal, new_rows
from tensorese.search.proposers.shares import split
from tensorese.space.replay import SCHEDULE_ERRORS, decisions_of
from tensorese.space.space import TaskSpace

log = logging.getLogger(__name__)

REPLAYS = 64
"""The most rows of an uncovered sketch that one call draws: each costs TVM some milliseconds."""
_TRIES = 10  # replays per wanted row before the sketch is called exhausted
_ROUNDS = 3
_REFUSALS = 8  # rows that TVM may refuse per row wanted, before another sketch is tried


def draw(
    state: TaskState, sketch: int, n: int, rng: np.random.Generator, *, computed: bool = False
) -> Ints:
    """Up to `n` legal rows, seen ones and repetitions included.

    With `computed`, legal as far as `TaskState.computed` tells.
    """
    space = state.computed(sketch) if computed else state.space.sketches[sketch]
    if n <= 0 or sketch in state.barren:
        return np.zeros((0, space.sketch.n_decisions), dtype=np.int64)
    if space.covered:
        rows = space.sample(n, rng)
    else:
        if sketch not in state.replayed:
            state.replayed.add(sketch)
            log.warning("sketch %d is drawn by replay: %s", sketch, space.reason)
        rows = replayed_rows(state.space, sketch, min(n, REPLAYS), rng)
    if not len(rows):
        state.barren.add(sketch)  # looking for its rows takes seconds: not again
    return rows


def replayed_rows(space: TaskSpace, sketch: int, n: int, rng: np.random.Generator) -> Ints:
    """Rows that TVM itself draws, schedules and passes; what stock search does to every sample."""
    referee = space.referee
    trace = referee.tvm.s_tir.schedule.Trace(referee.instructions[sketch], {})
    rows: list[tuple[int, ...]] = []
    for _ in range(n * _TRIES):
        # Seeds start at 1: TVM reads 0 and -1 as "choose one yourself".
        schedule = referee.tvm.s_tir.Schedule(referee.module, seed=int(rng.integers(1, 1 << 30)))
        try:
            trace.apply_to_schedule(schedule, remove_postproc=True)
            decisions = decisions_of(schedule.trace)
            schedule.enter_postproc()
            passed = all(p.apply(schedule) for p in referee.context.space_generator.postprocs)
        except SCHEDULE_ERRORS:
            continue
        if passed:
            rows.append(decisions)
        if len(rows) == n:
            break
    width = space.sketches[sketch].sketch.n_decisions
    return np.array(rows, dtype=np.int64).reshape(len(rows), width)


def random_proposals(
    state: TaskState,
    n: int,
    shares: Floats64,
    rng: np.random.Generator,
    beside: Iterable[Proposal] = (),
) -> list[Proposal]:
    """Up to `n` new rows by the sketches' shares; what one sketch lacks, the others make up for.

    None of them is among those `beside` them.
    """
    known = {(p.sketch, p.row) for p in beside}
    taken: dict[tuple[int, DecisionRow], None] = {}
    for trial in range(_ROUNDS if n > 0 else 0):
        for sketch, count in enumerate(split(n - len(taken), shares)):
            # A space nearly used up gives few new rows a draw: later rounds ask for many.
            tries = 2 * count if trial == 0 else max(2 * count, 32) * 8**trial
            rows = new_rows(state, sketch, draw(state, sketch, tries, rng, computed=True))
            wanted = count if trial == 0 else n - len(taken)
            for row in _legal(state, sketch, rows, wanted, known | taken.keys()):
                taken[sketch, row] = None
        if len(taken) >= n:
            break
    return [Proposal(sketch=sketch, row=row, origin="random") for sketch, row in taken]


def _legal(
    state: TaskState, sketch: int, rows: Ints, wanted: int, known: Set[tuple[int, DecisionRow]]
) -> Iterator[DecisionRow]:
    """Up to `wanted` of the rows; TVM, where it decides, is asked about few more than that."""
    tried = 0
    for row in rows:
        place = tuple(row.tolist())
        if wanted <= 0 or tried > _REFUSALS * (wanted + 4):
            return
        if (sketch, place) in known:
            continue
        tried += 1
        if are_legal(state, sketch, row[None])[0]:
            wanted -= 1
            yield place
