"""Rows become TVM schedules: replayed, postprocessed, read back. The only slow step of a search."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from tensorese.identity import plain
from tensorese.language.metaschedule import cut_tail
from tensorese.records.nouns import Program, Workload
from tensorese.space.replay import SCHEDULE_ERRORS
from tensorese.space.space import TaskSpace
from tensorese.space.tiles import Ints


@dataclass(frozen=True, kw_only=True)
class Materialised:
    """A program and, unless `error` says why not, its postprocessed schedule."""

    program: Program
    schedule: Any = None
    error: str = ""


def materialise(
    space: TaskSpace,
    rows: Iterable[tuple[int, Ints | Sequence[int]]],
    workload: Workload,
    *,
    threads: int | None = None,
) -> list[Materialised]:
    """`(sketch, row)` pairs as schedules, in order, on several threads: TVM frees the GIL.

    A program's tail holds what the postprocessors did, so that its trace alone replays to the
    same module, on a build worker say. A row that TVM changes or refuses comes back with `error`.
    """
    pairs = list(rows)
    workers = threads or len(os.sched_getaffinity(0))
    if workers == 1 or len(pairs) < 2:
        return [_one(space, sketch, row, workload) for sketch, row in pairs]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda pair: _one(space, pair[0], pair[1], workload), pairs))


def _one(
    space: TaskSpace, sketch: int, row: Ints | Sequence[int], workload: Workload
) -> Materialised:
    program = space.program(sketch, row, workload)
    try:
        done = space.replay(sketch, row)
    except SCHEDULE_ERRORS as error:
        lines = str(error).strip().splitlines()
        return Materialised(program=program, error=lines[-1] if lines else repr(error))
    if done.decisions != program.decisions:
        said = f"TVM replays {list(program.decisions)} as {list(done.decisions)}"
        return Materialised(program=program, error=said)
    if not done.passed:
        return Materialised(program=program, error="a postprocessor refused the schedule")
    _, tail = cut_tail(plain(done.schedule.trace.as_json()))
    return Materialised(program=replace(program, tail=tail), schedule=done.schedule)
