"""Rows become TVM schedules: replayed, postprocessed, read back. The only slow step of a search."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from tensorese.arrays import Ints
from tensorese.identity import plain
from tensorese.language.metaschedule import cut_tail
from tensorese.records.nouns import Program, Workload
from tensorese.space.replay import SCHEDULE_ERRORS
from tensorese.space.space import TaskSpace


@dataclass(frozen=True, kw_only=True)
class Materialised:
    """A program and, unless `error` says why not, its postprocessed schedule."""

    program: Program
    schedule: Any = None
    error: str = ""

    def recorded(self) -> Program:
        """The program with its tail: what the postprocessors did, so that its trace alone replays
        to the same module. Made on demand: writing a trace out takes a millisecond or two."""
        if self.schedule is None:
            return self.program
        return replace(self.program, tail=cut_tail(plain(self.schedule.trace.as_json()))[1])


def materialise(
    space: TaskSpace,
    rows: Iterable[tuple[int, Ints | Sequence[int]]],
    workload: Workload,
    *,
    threads: int | None = None,
    verify: bool = False,
    traced: bool = True,
) -> list[Materialised]:
    """`(sketch, row)` pairs as schedules, in order, on several threads: TVM frees the GIL.

    A row that TVM changes or refuses comes back with `error`. What changes the program is applied;
    TVM's own verdict, which lowers the program and takes longer than all the rest, is left to the
    build unless `verify`. Without `traced` rows are taken to be legal down to their locations: CPU
    programs are ready in half the time, from a schedule whose trace cannot be replayed in memory
    (a stock database does that; `recorded` and the module are as ever).
    """
    pairs = list(rows)
    workers = threads or len(os.sched_getaffinity(0))

    def one(pair: tuple[int, Ints | Sequence[int]]) -> Materialised:
        program = space.program(*pair, workload)
        return _one(space, pair, program, verify=verify, traced=traced)

    if workers == 1 or len(pairs) < 2:
        return [one(pair) for pair in pairs]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, pairs))


def _one(
    space: TaskSpace,
    pair: tuple[int, Ints | Sequence[int]],
    program: Program,
    *,
    verify: bool,
    traced: bool,
) -> Materialised:
    try:
        done = space.replay(*pair, verify=verify, traced=traced)
    except SCHEDULE_ERRORS as error:
        lines = str(error).strip().splitlines()
        return Materialised(program=program, error=lines[-1] if lines else repr(error))
    if done.decisions != program.decisions:
        difference = f"TVM replays {list(program.decisions)} as {list(done.decisions)}"
        return Materialised(program=program, error=difference)
    if not done.passed:
        return Materialised(program=program, error="a postprocessor refused the schedule")
    return Materialised(program=program, schedule=done.schedule)
