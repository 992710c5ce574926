"""Random rows of a sketch that integers do not decide: drawn by TVM itself, 2-9 ms each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tensorese.space.replay import SCHEDULE_ERRORS, decisions_of
from tensorese.space.space import TaskSpace

_MOST_MISSES = 200  # draws without a new legal row after which the sketch counts as exhausted


def replayed_rows(
    space: TaskSpace, sketch: int, rng: np.random.Generator
) -> Iterator[tuple[int, ...]]:
    """Distinct legal rows, not uniform over factorisations as TVM's own draw is not."""
    referee = space.referee
    tvm = referee.tvm
    seen: set[tuple[int, ...]] = set()
    misses = 0
    while misses < _MOST_MISSES:
        misses += 1
        schedule = tvm.s_tir.Schedule(referee.module, seed=int(rng.integers(1, 1 << 30)))
        fresh = tvm.s_tir.schedule.Trace(referee.instructions[sketch], {})
        try:
            fresh.apply_to_schedule(schedule, remove_postproc=True)
            row = decisions_of(schedule.trace)
            schedule.enter_postproc()
            postprocessors = referee.context.space_generator.postprocs
            legal = all(one.apply(schedule) for one in postprocessors)
        except SCHEDULE_ERRORS:
            continue
        if legal and row not in seen:
            misses = 0
            seen.add(row)
            yield row
