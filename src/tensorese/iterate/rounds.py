"""The rounds: one batch is measured while a model learns from those before and writes the next.

Batch `i` is written by the model that has learnt from batches up to `i - 2`: while batch `i - 1`
is measured it learns and writes. Batches 0 and 1 are the base's.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tensorese.collect.tasklist import ListedTask
from tensorese.iterate.config import IterateConfig
from tensorese.iterate.events import RoundDone, RoundsView
from tensorese.iterate.folder import MODEL, Batch, IterationFolder
from tensorese.iterate.learner import Learner, Order
from tensorese.iterate.picking import TaskHistory, gain_of, pick_tasks, shares, weighted_sum
from tensorese.measure.base import Cancelled, Candidate, Measurer, Ticket
from tensorese.records.nouns import Measurement, Status
from tensorese.records.store import Store

INTERRUPTED = "interrupted"
_TICK = 0.02  # seconds between two looks at the measurer while it works


@dataclass(kw_only=True)
class _Flight:
    """A batch that is being measured."""

    batch: Batch
    begun: float = field(default_factory=time.time)
    waiting: deque[tuple[str, list[Candidate]]] = field(default_factory=deque)
    """Tasks whose programs are not handed out yet."""
    tickets: list[tuple[list[Candidate], Ticket]] = field(default_factory=list)
    results: dict[str, Measurement] = field(default_factory=dict)
    """By program."""

    @property
    def flying(self) -> int:
        return sum(ticket.remaining for _, ticket in self.tickets)


class Rounds:
    """`run` ends when the limits are reached or nothing is gained, and says why."""

    def __init__(
        self,
        folder: IterationFolder,
        tasks: Sequence[ListedTask],
        *,
        store: Store,
        measurer: Measurer,
        learner: Learner,
        config: IterateConfig,
        platform: str,
        window: Callable[[], int] = lambda: 0,
        view: RoundsView | None = None,
        started: float | None = None,
    ) -> None:
        """`window`: programs that keep a measurer busy whose size changes, if over `in_flight`."""
        self.folder, self.store = folder, store
        self.tasks = {task.workload.id: task for task in tasks}
        self.weights = {name: weight_of(task) for name, task in self.tasks.items()}
        self.workloads = {name: task.workload for name, task in self.tasks.items()}
        self.measurer, self.learner = measurer, learner
        self.config, self.platform, self.window = config, platform, window
        self.view = view or RoundsView()
        self.started = time.monotonic() if started is None else started
        self.earlier = float(folder.head["seconds"])
        self.stopped = ""
        self._asked: Order | None = None
        self._ready = False

    def stop(self) -> None:
        """Finish what is being measured now, begin nothing more; callable from a handler."""
        self.stopped = INTERRUPTED
        self.measurer.cancel()

    @property
    def elapsed(self) -> float:
        return self.earlier + time.monotonic() - self.started

    @property
    def trials(self) -> int:
        """Of the rounds that are over."""
        return int(self.folder.rounds[-1]["trials"]) if self.folder.rounds else 0

    def run(self) -> str:
        """Why it ended."""
        try:
            while not (self._ready or self.stopped):
                self._listen(0.2)
                self._look_at_the_clock()
            self._rounds()
        except Cancelled:
            self.measurer.settle()
        over = self.stopped in (INTERRUPTED, "time is up")
        if not over:
            self._learn_all()
        state = INTERRUPTED if self.stopped == INTERRUPTED else "finished"
        self.folder.write_state(state, self.stopped, self.elapsed)
        return self.stopped

    def _rounds(self) -> None:
        while not self.stopped:
            number = len(self.folder.rounds)
            self.stopped = ended(self.folder, list(self.tasks.values()), self.config, self.elapsed)
            if self.stopped:
                return
            batch = self._batch(number)
            if batch is None:
                return
            self._ask(number + 1)
            self._measure(batch)

    def _look_at_the_clock(self) -> None:
        if not self.stopped and _time_is_up(self.config, self.elapsed):
            self.stopped = "time is up"
            self.measurer.cancel()

    # -- batches --------------------------------------------------------------------------

    def _order(self, number: int) -> Order:
        histories = histories_of(self.folder, list(self.tasks.values()), number)
        n = math.ceil(self.config.task_share * len(self.tasks))
        left = None
        if self.config.trials is not None:
            handed_out = sum(map(len, self.folder.batches(number)))
            left = self.config.trials - handed_out
        planned = shares(pick_tasks(histories, n), self.config.per_task, left)
        return Order(number=number, learnt=max(0, number - 1), tasks=planned)

    def _ask(self, number: int) -> None:
        """For the batch, unless it is there, or nobody will measure it."""
        if number >= self.config.rounds or self.folder.batch(number) is not None:
            return
        order = self._order(number)
        if order.tasks:
            self._asked = order
            self.learner.ask(order)

    def _batch(self, number: int) -> Batch | None:
        """Waits until it is written; None when there is none to come, or when told to stop."""
        if self._asked is None:
            self._ask(number)
        batch = self._wait_for(number)
        if batch is None and not self.stopped:
            self.stopped = "nothing left to try"
        return batch

    def _wait_for(self, number: int) -> Batch | None:
        while self._asked is not None and not self.stopped:
            self._listen(0.2)
            self._look_at_the_clock()
        return None if self.stopped else self.folder.batch(number)

    def _listen(self, secs: float = 0.0) -> None:
        for message in self.learner.poll(secs):
            if "note" in message:
                self.view.on_note(message["note"])
            elif "progress" in message:
                self.view.on_progress(message["progress"])
            elif "ready" in message:
                self._ready = True
            elif "done" in message:
                self._asked = None
                self._place(int(message["learnt"]))

    def _place(self, learnt: int) -> None:
        path = self.folder.model_path(learnt)
        if path.exists():
            self.folder.place_model(path)
        elif not (self.folder.path / MODEL).exists():  # nothing has run: the base stays
            self.folder.place_model(self.folder.model_path(0))

    def _learn_all(self) -> None:
        """The last model knows all rounds. What was asked for before is of no use any more, but
        must be waited for."""
        rounds = len(self.folder.rounds)
        if rounds and not self.folder.model_path(rounds).exists():
            self._wait()
            self._asked = Order(number=rounds, learnt=rounds, tasks=())
            self.learner.ask(self._asked)
            self._wait()
        elif rounds:
            self._place(rounds)

    def _wait(self) -> None:
        while self._asked is not None and self.stopped != INTERRUPTED:
            self._listen(0.2)

    # -- measuring ------------------------------------------------------------------------

    def _measure(self, batch: Batch) -> None:
        known = self._known(batch)
        flight = _Flight(batch=batch, results=dict(known))
        for task, candidates in self._candidates(batch):
            left = [one for one in candidates if one.program.id not in known]
            if left:
                flight.waiting.append((task, left))
        before = self.folder.rounds[-1]["best"] if self.folder.rounds else {}
        while flight.waiting or flight.tickets:
            self._submit(flight)
            if not self._collect(flight):
                self._listen(_TICK)
            self.view.on_measured(batch.number, len(flight.results), len(batch))
            self._look_at_the_clock()
        self.learner.pause(False)
        self._finish(flight, before)

    def _known(self, batch: Batch) -> dict[str, Measurement]:
        """Measured by an earlier sitting, which did not finish the round."""
        wanted = {program.id for program, _ in batch.programs(self.workloads)}
        if self.platform not in self.store.platforms():
            return {}
        stored = self.store.measurements(platform=self.platform)
        return {
            m.program.id: m
            for m in stored
            if m.program.id in wanted and m.status is not Status.INFRA_ERROR
        }

    def _candidates(self, batch: Batch) -> list[tuple[str, list[Candidate]]]:
        by_task: dict[str, list[Candidate]] = {}
        for program, origin in batch.programs(self.workloads):
            task = self.tasks[program.workload.id]
            by_task.setdefault(program.workload.id, []).append(
                Candidate(program=program, origin=origin, split=task.split)
            )
        return list(by_task.items())

    def _submit(self, flight: _Flight) -> None:
        most = max(self.config.in_flight, self.window())
        while flight.waiting and flight.flying < most:
            _, candidates = flight.waiting.popleft()
            flight.tickets.append((candidates, self.measurer.submit(candidates)))

    def _collect(self, flight: _Flight) -> int:
        moved = 0
        for candidates, ticket in flight.tickets:
            for index, measurement in ticket.poll():
                flight.results[candidates[index].program.id] = measurement
                moved += 1
        flight.tickets = [pair for pair in flight.tickets if pair[1].remaining]
        return moved

    def _finish(self, flight: _Flight, before: Mapping[str, float]) -> None:
        best = dict(before)
        for measurement in flight.results.values():
            if measurement.status is Status.OK:
                name = measurement.program.workload.id
                best[name] = min(best.get(name, math.inf), measurement.latency)
        statuses = Counter(m.status.value for m in flight.results.values())
        batch = flight.batch
        line: dict[str, Any] = {
            "round": batch.number,
            "trials": self.trials + len(batch),
            "secs": round(self.elapsed, 3),
            "sum": weighted_sum(best, self.weights),
            "gain": gain_of(before, best, self.weights) if len(batch) else None,
            "tasks": len(best),
            "best": best,
            "statuses": dict(sorted(statuses.items())),
            "model": batch.model,
            "learnt": batch.learnt,
            "measured": [round(flight.begun, 3), round(time.time(), 3)],
            "written": [round(moment, 3) for moment in batch.span],
        }
        self.folder.finish(line)
        self.folder.write_state("running", seconds=self.elapsed)
        self.view.on_round(RoundDone(line=line, of=len(self.tasks)))


def weight_of(task: ListedTask) -> float:
    """How often the networks run it."""
    return float(sum(weight for _, weight in task.networks) or 1)


def histories_of(
    folder: IterationFolder, tasks: Sequence[ListedTask], number: int
) -> list[TaskHistory]:
    """As they are known when batch `number` is planned: the batch before is not measured. Tasks
    that no program is left of are not among them."""
    batches = folder.batches(number)
    visits = Counter(task for batch in batches for task, _ in batch.rows)
    over = {task for batch in batches for task in batch.over}
    bests: dict[str, list[float]] = {}
    for batch, line in zip(batches[: max(0, number - 1)], folder.rounds, strict=False):
        for name, _ in batch.rows:
            bests.setdefault(name, []).append(line["best"].get(name, math.inf))
    return [
        TaskHistory(
            workload=task.workload.id,
            weight=weight_of(task),
            flops=task.flops,
            visits=visits[task.workload.id],
            bests=bests.get(task.workload.id, ()),
        )
        for task in tasks
        if task.workload.id not in over
    ]


def ended(
    folder: IterationFolder, tasks: Sequence[ListedTask], config: IterateConfig, secs: float
) -> str:
    """Why no further round begins; empty where one does."""
    rounds = folder.rounds
    if _time_is_up(config, secs):
        return "time is up"
    if len(rounds) >= config.rounds:
        return f"{len(rounds)} rounds are over"
    if config.trials is not None and rounds and rounds[-1]["trials"] >= config.trials:
        return "all trials used"
    gain = rounds[-1]["gain"] if len(rounds) >= 2 else None
    fresh = any(not task.visits for task in histories_of(folder, tasks, len(rounds)))
    if gain is not None and gain < config.least_gain and not fresh:
        return f"round {len(rounds)} gained {100 * gain:.2f} %"
    return ""


def _time_is_up(config: IterateConfig, secs: float) -> bool:
    return config.minutes is not None and secs >= 60 * config.minutes
