"""The collecting loop: asks planners for programs, keeps the farm busy, until time is up."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tensorese import interrupts
from tensorese.collect.planner_pool import PlannedPrograms, Planners, Request
from tensorese.collect.tasklist import ListedTask
from tensorese.errors import MeasureError
from tensorese.measure.base import Candidate, Measurer, Ticket
from tensorese.measure.faults import FaultsInARow
from tensorese.records.nouns import Measurement, Status

LIGHT = ("elementwise", "pool", "copy", "reduce", "gather")
_LIGHT_WEIGHT = 0.2
_IDLE_SECS = 0.01


@dataclass(frozen=True, kw_only=True)
class CollectConfig:
    """What to collect; every number is per run of the command."""

    minutes: float = 10.0
    per_task: int = 0
    """Stop a task after so many programs, those of the store included; 0 for no limit."""
    random_share: float = 0.75
    """Of a task's programs; the rest are mutations of its best. Test tasks are random only."""
    per_request: int = 8
    explore: int = 16
    """Valid random programs of a task before its best are mutated."""
    parents: int = 4
    only_named: bool = False
    """Measure the programs sent by others and nothing else."""
    seed: int = 0
    in_flight: int = 48
    """Programs handed to the measurer and not back yet."""
    drain_secs: float = 15.0
    """How long programs in flight are waited for when time is up."""

    def __post_init__(self) -> None:
        if not 0 < self.minutes < math.inf:
            raise MeasureError(f"--minutes must be positive and finite, but got {self.minutes:g}")
        if not 0.7 <= self.random_share <= 1.0:
            raise MeasureError(
                f"0.7 <= random share <= 1 must hold, but got {self.random_share}: models of "
                "collected data must know ordinary programs too"
            )


@dataclass
class TaskProgress:
    """One task during a run."""

    task: ListedTask
    known: list[str] = field(default_factory=list)
    """Ids of programs the store had."""
    named: list[tuple[str, tuple[int, ...], str]] = field(default_factory=list)
    """Programs sent by others, still to be requested: sketch id, decisions, origin."""
    counts: Counter[str] = field(default_factory=Counter)
    """Programs ordered, by origin."""
    valid: int = 0
    pending: int = 0
    """Requests that the planners have not answered."""
    introduced: bool = False
    """Whether a request has carried `known` to the planners."""
    exhausted: bool = False
    error: str = ""
    best: list[tuple[float, str, tuple[int, ...]]] = field(default_factory=list)

    @property
    def total(self) -> int:
        return len(self.known) + sum(self.counts.values())

    @property
    def weight(self) -> float:
        return _LIGHT_WEIGHT if self.task.operator in LIGHT else 1.0

    def remember(self, measurement: Measurement, parents: int) -> None:
        self.valid += 1
        program = measurement.program
        self.best.append((measurement.latency, program.sketch.id, program.decisions))
        self.best = sorted(self.best)[:parents]

    def wants_mutation(self, config: CollectConfig) -> bool:
        if self.task.split == "test" or self.valid < config.explore:
            return False
        after = sum(self.counts.values()) + config.per_request
        return self.counts["mutation"] + config.per_request <= (1 - config.random_share) * after


@dataclass
class HostTally:
    """What one host did so far; `first` and `last` are when its results arrived."""

    measured: int = 0
    first: float = field(default_factory=time.monotonic)
    last: float = 0.0

    def count(self) -> None:
        self.measured += 1
        self.last = time.monotonic()

    @property
    def rate(self) -> float:
        """Programs a second while it was there: not less for having joined late or died."""
        return (self.measured - 1) / max(1e-9, self.last - self.first) if self.measured > 1 else 0.0

    def to_dict(self) -> dict[str, float]:
        return {"measured": self.measured, "programs_per_sec": round(self.rate, 2)}


@dataclass
class Tally:
    """What a run did so far."""

    measured: int = 0
    by_status: Counter[str] = field(default_factory=Counter)
    by_origin: Counter[str] = field(default_factory=Counter)
    by_class: Counter[str] = field(default_factory=Counter)
    hosts: dict[str, HostTally] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    """Tasks without a space, by workload id."""
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        return self.measured / max(1e-9, time.monotonic() - self.started)


class Collector:
    """Spreads programs over tasks: the one with the fewest programs for its weight comes next."""

    def __init__(
        self,
        progress: Sequence[TaskProgress],
        planners: Planners,
        measurer: Measurer,
        config: CollectConfig,
        on_result: Callable[[Tally], None] = lambda tally: None,
        window: Callable[[], int] = lambda: 0,
        faults: FaultsInARow | None = None,
    ) -> None:
        """`window`: programs that keep a measurer busy whose size changes, if over `in_flight`.
        `faults` are those of this machine; where programs are measured by others, they retry."""
        self.progress = list(progress)
        self.planners = planners
        self.measurer = measurer
        self.config = config
        self.on_result = on_result
        self.window = window
        self.faults = faults
        self.retried: set[str] = set()
        self.again: list[tuple[TaskProgress, Ticket]] = []
        self.tally = Tally()
        self.tickets: list[tuple[TaskProgress, Ticket]] = []
        self.outstanding = 0  # requests at the planners

    def run(self) -> Tally:
        deadline = time.monotonic() + 60 * self.config.minutes
        while time.monotonic() < deadline:
            interrupts.check()
            self._request()
            moved = self._submit() + self._collect()
            if not (self.outstanding or self.tickets) and self._next_task() is None:
                break  # nothing left anywhere
            if not moved:
                time.sleep(_IDLE_SECS)
        self._drain()
        self.tally.seconds = time.monotonic() - self.tally.started
        return self.tally

    # -- asking ------------------------------------------------------------------------------

    def _request(self) -> None:
        """Keeps as many programs ordered as are in flight: a slow space must not stop the farm."""
        in_flight = max(self.config.in_flight, self.window())
        ahead = max(2, 2 * in_flight // self.config.per_request)
        queued = sum(ticket.remaining for _, ticket in self.tickets)
        while self.outstanding < ahead and queued < in_flight:
            place = self._next_task()
            if place is None:
                return
            self._ask(place)

    def _next_task(self) -> int | None:
        limit = self.config.per_task or math.inf
        best: tuple[bool, float, int] | None = None
        for index, state in enumerate(self.progress):
            if not state.named and not self._has_more(state, limit):
                continue
            urgency = (not state.named, state.total / state.weight, index)
            best = urgency if best is None else min(best, urgency)
        return None if best is None else best[-1]

    def _has_more(self, state: TaskProgress, limit: float) -> bool:
        if state.error or self.config.only_named or state.total >= limit:
            return False
        # A dry task is asked for mutations one request at a time: its best may change meanwhile.
        return not state.exhausted or (not state.pending and state.wants_mutation(self.config))

    def _ask(self, index: int) -> None:
        state = self.progress[index]
        n = self.config.per_request
        if self.config.per_task:
            n = max(1, min(n, self.config.per_task - state.total))
        request = Request(task=index, op="random", n=n, origin="random")
        if state.named:
            origin = state.named[0][2]
            batch = [row for row in state.named if row[2] == origin][:n]
            state.named = [row for row in state.named if row not in batch]
            rows = [(sketch, decisions) for sketch, decisions, _ in batch]
            request = Request(task=index, op="named", n=len(rows), rows=rows, origin=origin)
        elif state.wants_mutation(self.config):
            rows = [(sketch, decisions) for _, sketch, decisions in state.best]
            request = Request(task=index, op="mutation", n=n, rows=rows, origin="mutation")
        if not state.introduced:
            request = Request(**{**vars(request), "known": state.known})
            state.introduced = True
        state.pending += 1
        state.counts[request.origin] += request.n
        self.outstanding += 1
        self.planners.ask(request)

    # -- measuring ---------------------------------------------------------------------------

    def _submit(self) -> int:
        plans = self.planners.poll()
        for plan in plans:
            self.outstanding -= 1
            self._take(self.progress[plan.request.task], plan)
        return len(plans)

    def _take(self, state: TaskProgress, plan: PlannedPrograms) -> None:
        origin = plan.request.origin
        state.pending -= 1
        state.counts[origin] += len(plan.programs) - plan.request.n
        if plan.error:
            state.error = plan.error
            self.tally.errors[state.task.workload.id] = plan.error
            return
        dry = plan.request.op == "mutation" and not plan.programs
        state.exhausted = plan.exhausted
        if dry and plan.exhausted:
            state.error = "no program left"
        if not plan.programs:
            return
        candidates = [
            Candidate(program=program, origin=origin, split=state.task.split)
            for program in plan.programs
        ]
        self.tickets.append((state, self.measurer.submit(candidates)))

    def _collect(self) -> int:
        moved = 0
        for state, ticket in self.tickets:
            for _, measurement in ticket.poll():
                moved += 1
                self._record(state, measurement)
        self.tickets = [(state, ticket) for state, ticket in self.tickets if ticket.remaining]
        self.tickets += self.again
        self.again.clear()
        return moved

    def _record(self, state: TaskProgress, measurement: Measurement) -> None:
        tally = self.tally
        tally.by_status[measurement.status.value] += 1
        if self.faults is not None:
            self.faults.see(measurement)
        if measurement.status is Status.INFRA_ERROR and self._again(state, measurement):
            return
        tally.measured += 1
        tally.by_origin[measurement.origin] += 1
        tally.by_class[state.task.operator] += 1
        tally.hosts.setdefault(measurement.host, HostTally()).count()
        if measurement.status is Status.OK:
            state.remember(measurement, self.config.parents)
        self.on_result(tally)

    def _again(self, state: TaskProgress, measurement: Measurement) -> bool:
        """Whether what met a fault of the machine is tried once more."""
        program = measurement.program
        if self.faults is None or program.id in self.retried:
            return False
        self.retried.add(program.id)
        candidate = Candidate(program=program, origin=measurement.origin, split=measurement.split)
        self.again.append((state, self.measurer.submit([candidate])))
        return True

    def _drain(self) -> None:
        until = time.monotonic() + self.config.drain_secs
        while self.tickets and time.monotonic() < until:
            interrupts.check()
            if not self._collect():
                time.sleep(_IDLE_SECS)
