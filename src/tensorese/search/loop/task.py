"""One task of a run: its space, built when first needed, and how proposals become candidates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tensorese.measure.base import Candidate
from tensorese.records.nouns import Measurement, Platform, Program
from tensorese.records.run_entries import PendingRow
from tensorese.search.contracts import Proposal, Proposer, TaskState
from tensorese.search.loop.config import TuneError
from tensorese.search.loop.events import TaskLine
from tensorese.search.loop.scheduler import Progress
from tensorese.search.proposers.warm_start import own_rows
from tensorese.space.replay import SCHEDULE_ERRORS
from tensorese.space.space import task_space
from tensorese.space.tiles import SpaceError
from tensorese.targets import Target

if TYPE_CHECKING:
    from tensorese.records.task import Task

Seeds = Callable[[TaskState, int], list[Proposal]]
"""Up to so many rows worth trying first, from earlier runs."""

ORIGIN = "known"
"""Of a program that another run found."""
_WIDTHS = {"float64": 8, "int64": 8, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "bool": 1}


class Untunable(TuneError):
    """A task without a space; the network keeps its unscheduled kernel."""


class TuningTask:
    def __init__(self, task: Task, platform: Platform) -> None:
        self.task = task
        self.platform = platform
        self.proposed = 0
        """Batches so far."""
        self.progress = Progress(
            name=task.name,
            operator=task.operator,
            weight=task.weight,
            flops=task.flops,
            bytes=sum(math.prod(a.shape) * _width(a.dtype) for a in task.workload.args),
        )
        self.measurements: list[Measurement] = []
        self.known: Sequence[Program] = ()
        """The best of other runs, the fastest first."""
        self._state: TaskState | None = None

    @property
    def id(self) -> str:
        return self.task.workload.id

    @property
    def state(self) -> TaskState:
        return self.open()

    def open(self) -> TaskState:
        """Builds the space when called first, which takes TVM a second or so."""
        if self._state is None:
            try:
                space = task_space(self.task.module, Target.from_json(self.task.target), seed=0)
            except (*SCHEDULE_ERRORS, SpaceError) as error:
                lines = str(error).strip().splitlines() or [type(error).__name__]
                raise Untunable(f"TVM has no space for it ({lines[-1].strip()[:160]})") from error
            if not space.sketches:
                raise Untunable("TVM offers no sketch for it")
            self._state = TaskState(self.task.workload, space, self.platform)
            for measurement in self.measurements:
                self._state.add(measurement)
        return self._state

    def weigh(self, weight: int) -> None:
        """The network runs it so often from now on."""
        self.task = replace(self.task, weight=weight)
        self.progress.weight = weight

    def add(self, measurements: Sequence[Measurement]) -> None:
        self.measurements.extend(measurements)
        if self._state is not None:
            for measurement in measurements:
                self._state.add(measurement)

    def propose(self, n: int, proposer: Proposer, first_rows: Seeds) -> list[Proposal]:
        """Rows for the task's next batch, promised; none when the space is exhausted."""
        state = self.state
        proposals = [] if self.proposed else self.again()[:n] or first_rows(state, n)[:n]
        state.promise(proposals)
        if len(proposals) < n:
            state.batch = self.proposed
            (more,) = proposer.propose([state], n - len(proposals))
            state.promise(more)
            proposals.extend(more)
        self.proposed += 1
        return proposals

    def again(self) -> list[Proposal]:
        """What other runs found best."""
        return own_rows(self.state, self.known, ORIGIN)

    def place(self, rows: Sequence[PendingRow]) -> list[Proposal]:
        """Rows of an interrupted batch, found again by the ids of their sketches."""
        places = {s.sketch.id: i for i, s in enumerate(self.state.space.sketches)}
        proposals = [
            Proposal(sketch=places[r.sketch], row=r.row, origin=r.origin, score=r.score)
            for r in rows
            if r.sketch in places
        ]
        self.state.promise(proposals)
        self.proposed += 1
        return proposals

    def named(self, proposals: Sequence[Proposal]) -> list[PendingRow]:
        ids = [space.sketch.id for space in self.state.space.sketches]
        return [
            PendingRow(sketch=ids[p.sketch], row=p.row, origin=p.origin, score=p.score)
            for p in proposals
        ]

    def program(self, proposal: Proposal) -> Program:
        return self.state.space.program(proposal.sketch, proposal.row, self.task.workload)

    def candidates(self, proposals: Sequence[Proposal]) -> list[Candidate]:
        """Not scheduled here: build workers replay rows anyway, and there are several of them."""
        return [Candidate(program=self.program(p), origin=p.origin) for p in proposals]

    def line(self) -> TaskLine:
        progress = self.progress
        return TaskLine(
            workload=self.id,
            name=self.task.name,
            operator=self.task.operator,
            weight=self.task.weight,
            flops=self.task.flops,
            trials=progress.trials,
            failures=progress.failures,
            latency=progress.best if progress.valid else None,
            note=progress.over,
        )


def _width(dtype: str) -> int:
    return _WIDTHS.get(dtype, 4)
