"""Features of lowered programs by a farm's build workers: no device is needed, nothing is run.

`Farm.lower` hands programs to the workers that build; `LoweringFarm` has build workers alone, on
all cores. `lower_programs` asks for what a cache lacks and keeps what comes.
"""

from __future__ import annotations

import base64
import os
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tensorese.arrays import Floats32, Ints
from tensorese.features.lowered import (
    COLUMNS,
    Lowered,
    LoweredCache,
    LowerStatus,
    Ragged,
    coarse_row,
    no_rows,
    pack,
)
from tensorese.measure.config import CorePlan, FarmConfig
from tensorese.measure.jobs import is_open, trace_of
from tensorese.measure.wire import Message
from tensorese.records.nouns import Program, Sketch, Status, Workload
from tensorese.targets import Target, usable_cores

if TYPE_CHECKING:
    from tensorese.measure.farm import Farm

FLUSH = 2000
"""Programs in one part of the cache: what a kill -9 may lose."""
_KEPT = 8192
"""Programs whose rows a search remembers, 100 MB or so."""
_AT_ONCE = 256
"""Programs handed out together: what Ctrl-C waits for is what the workers are at."""

Progress = Callable[[int, int], None]
"""Told how many of how many are done."""


class LowerTicket:
    """The results of one batch, as they complete."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.cancelled = False
        self._queue: queue.SimpleQueue[tuple[int, Lowered] | BaseException] = queue.SimpleQueue()

    def put(self, item: tuple[int, Lowered] | BaseException) -> None:
        self._queue.put(item)

    def __iter__(self) -> Iterator[tuple[int, Lowered]]:
        try:
            for _ in range(self.n):
                item = self._queue.get()
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self.cancelled = True  # nobody listens any more: the rest is not begun


@dataclass(eq=False)
class LowerJob:
    """One program between `Farm.lower` and its features."""

    id: int
    index: int
    program: Program
    ticket: LowerTicket
    attempts: int = 0

    def message(self, target: Target) -> Message:
        derive = is_open(self.program)
        program = replace(self.program, tail="") if derive else self.program
        return {
            "job": self.id,
            "lower": True,
            "target": target.to_json(),
            "workload": program.workload.module,
            "trace": trace_of(program, target),
            "postprocess": derive,
        }

    def finish(self, lowered: Lowered) -> None:
        self.ticket.put((self.index, lowered))


def from_reply(reply: Message) -> Lowered:
    status = LowerStatus(reply["status"])
    if status is not LowerStatus.OK:
        return no_rows(status, reply["error"])
    flat = np.frombuffer(base64.b64decode(reply["rows"]), dtype="<f4")
    return Lowered(status, flat.reshape(-1, COLUMNS).astype(np.float32))


def from_death(status: Status, text: str) -> Lowered:
    """What a worker's end says of the program it was lowering."""
    timeout = status is Status.BUILD_TIMEOUT
    return no_rows(LowerStatus.TIMEOUT if timeout else LowerStatus.LOWER_ERROR, text)


def lowering_farm(target: Target, workers: int = 0) -> Farm:
    """Build workers on all cores, for any target: the device need not be here."""
    from tensorese.measure.farm import Farm

    class LoweringFarm(Farm):
        def _plan_cores(self) -> CorePlan:
            cores = tuple(usable_cores())
            return CorePlan(lanes=(), builders=cores, exclusive=False, threads=1)

        def _kind(self) -> str:
            return "llvm"  # a foreman for CUDA would import intrinsics that nothing here needs

    return LoweringFarm(target, FarmConfig(build_workers=workers, sentinel_secs=0.0, looks=0))


def lower_programs(
    folder: str | os.PathLike[str] | LoweredCache,
    programs: Sequence[Program],
    target: Target,
    *,
    farm: Farm | None = None,
    workers: int = 0,
    progress: Progress | None = None,
) -> LoweredCache:
    """The cache in `folder` (a store's; or read already) with all these programs in it.

    What it knows is not computed again. Ctrl-C, or a failing farm, loses nothing that was done.
    """
    cache = folder if isinstance(folder, LoweredCache) else LoweredCache(Path(folder), target)
    distinct = {program.id: program for program in programs}
    missing = [program for name, program in distinct.items() if name not in cache]
    # A task's programs together: a worker keeps what it has read of a workload.
    missing.sort(key=lambda program: program.workload.id)
    report = progress or (lambda done, total: None)
    done = len(distinct) - len(missing)
    report(done, len(distinct))
    if not missing:
        return cache
    try:
        with nullcontext(farm) if farm else lowering_farm(target, workers) as team:
            for at in range(0, len(missing), _AT_ONCE):
                batch = missing[at : at + _AT_ONCE]
                for index, lowered in team.lower(batch):
                    cache.add(batch[index].id, lowered)
                    done += 1
                    report(done, len(distinct))
                if cache.n_unwritten >= FLUSH:
                    cache.flush()
    finally:
        cache.flush()
    return cache


class RowSource:
    """Rows of a sketch's programs by warm workers, each lowered once: what a search asks for."""

    def __init__(self, target: Target, farm: Callable[[], Farm]) -> None:
        """`farm` gives the workers when the first program is lowered."""
        self.target, self.farm = target, farm
        self.seconds, self.asked = 0.0, 0
        """Waited for workers, and for how many programs."""
        self._known: dict[str, Lowered] = {}
        self._coarse: dict[str, Floats32] = {}

    def __call__(self, workload: Workload, sketch: Sketch, rows: Ints) -> Ragged:
        programs = [
            Program(workload=workload, sketch=sketch, decisions=tuple(row)) for row in rows.tolist()
        ]
        missing = {one.id: one for one in programs if one.id not in self._known}
        if missing:
            self._lower(list(missing.values()))
        if workload.id not in self._coarse:
            self._coarse[workload.id] = coarse_row(workload, self.target)
        coarse = np.repeat(self._coarse[workload.id][None], len(rows), axis=0)
        ragged = pack([self._known[one.id] for one in programs], coarse)
        faults = [name for name in missing if self._known[name].status is LowerStatus.INFRA_ERROR]
        for name in (*faults, *list(self._known)[: max(0, len(self._known) - _KEPT)]):
            self._known.pop(name, None)
        return ragged

    def _lower(self, programs: Sequence[Program]) -> None:
        started = time.monotonic()
        for index, lowered in self.farm().lower(programs):
            self._known[programs[index].id] = lowered
        self.seconds += time.monotonic() - started
        self.asked += len(programs)
