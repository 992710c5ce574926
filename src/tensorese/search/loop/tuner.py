"""The tuning loop: pick a task, propose, measure, learn; until a limit is reached.

Two batches are in flight, of different tasks where there are two: while one is built and timed
the next is thought of. Where more builders would stand idle, so are batches of other tasks. What
a batch is made of depends on the seed, the number of builders and the batches learnt from before
it alone, so a run that was killed goes on exactly as it would have.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tensorese.measure.base import FINALIST, Cancelled, Measurer, Ticket, require_success
from tensorese.measure.faults import FaultsInARow
from tensorese.records.nouns import Measurement, Status
from tensorese.records.run_entries import EitherWay, Pending
from tensorese.records.run_folder import BEST, RunFolder
from tensorese.records.store import Store
from tensorese.search.contracts import Proposal, Proposer
from tensorese.search.loop import announce
from tensorese.search.loop.budget import FEWEST, Budget
from tensorese.search.loop.config import TuneConfig, TuneError
from tensorese.search.loop.either_way import settled
from tensorese.search.loop.events import Announcer, BatchDone, Ended
from tensorese.search.loop.finalists import Winner, affordable, leaders, remeasure
from tensorese.search.loop.first_batch import Learnt, first_rows
from tensorese.search.loop.reuse import Reuse, check_known, counted
from tensorese.search.loop.scheduler import Scheduler
from tensorese.search.loop.task import TuningTask, Untunable

_DEPTH = 2
_PER_BUILDER = 2  # programs in flight: one is built, one waits
_SAVE_SECS = 30.0
_TELL_SECS = 5.0
_UNTUNABLE = "not tuned"
_FAULT_TURNS = 3  # of a batch on a machine that fails some of its programs


@dataclass
class _Flight:
    """A batch between its proposal and its last result."""

    number: int
    task: int
    proposals: list[Proposal]
    programs: list[str]
    known: dict[str, Measurement]
    """Results there were before the process was killed."""
    ticket: Ticket
    order: list[str] = field(default_factory=list)
    """Programs in the order they were submitted."""
    phases: dict[str, float] = field(default_factory=dict)


class Tuner:
    """`run` once. `stop` may be called from a signal handler."""

    def __init__(
        self,
        tasks: Sequence[TuningTask],
        *,
        folder: RunFolder,
        measurer: Measurer,
        config: TuneConfig,
        proposer: Proposer,
        budget: Budget,
        records: Sequence[Store] = (),
        announcer: Announcer | None = None,
        reuse: Reuse | None = None,
        ways: Sequence[EitherWay] = (),
    ) -> None:
        self.tasks = list(tasks)
        self.ways = list(ways)
        """Of convolutions, to be decided between."""
        self.folder = folder
        self.measurer = measurer
        self.config = config
        self.proposer = proposer
        self.budget = budget
        self.learnt = Learnt()
        self.reuse = reuse or Reuse()
        self.first_rows = first_rows([*records, self.reuse.everything], self.learnt)
        self.announcer = announcer or Announcer([])
        self.scheduler = Scheduler(
            [task.progress for task in self.tasks],
            batch=config.batch,
            first=budget.first_batch(len(self.tasks)),
            early_stopping=config.early_stopping,
            by_time=config.limit_secs is not None,
        )
        self.stopped = ""
        """Why no more is proposed."""
        self.in_flight: deque[_Flight] = deque()
        self.measured = 0
        """Trials of this sitting."""
        self.faults = FaultsInARow()
        self._held = False
        self._next_number = self._first_new = 0
        self._unclaimed: dict[str, Measurement] = {}
        """Measured by an earlier sitting in a batch that it did not finish."""
        self._first_submit = math.inf
        self._saved = time.monotonic()
        self._phases: dict[str, float] = {}

    def stop(self) -> None:
        """Finish what is being measured now, propose nothing more."""
        self.stopped = "interrupted"
        self.measurer.cancel()

    # -- the loop -------------------------------------------------------------------------

    def run(self) -> dict[str, Winner]:
        """The winners by workload id."""
        for repair in self.folder.repairs:
            self.announcer.on_note(repair)
        self._recall()
        self._announce_start()
        try:
            self._resubmit()
            while not self.stopped or self.in_flight:
                self._fill()
                if not self.in_flight:
                    break
                results = self._wait(self.in_flight[0])
                flight = self.in_flight.popleft()
                with self._thinking():
                    self._absorb(flight, results)
                    self._fill()
        except Cancelled:
            self._salvage()
        self._require_something()
        return self._finish()

    def _require_something(self) -> None:
        """A run without one valid program must never end as if all was well."""
        if not self._trials() and self.stopped == "time is up":
            raise TuneError(
                f"--minutes must leave time to measure, but {self.config.minutes:g} were over "
                "before the first trial; allow more, on a machine that is not busy"
            )
        require_success([m for task in self.tasks for m in task.measurements])
        if all(task.progress.over.startswith(_UNTUNABLE) for task in self.tasks):
            first = self.tasks[0]
            raise TuneError(
                f"at least one task must be tunable, but none of {len(self.tasks)} is; "
                f"{first.task.name}: {first.progress.over}"
            )

    def _fill(self) -> None:
        while self._wants_more() and not self.stopped:
            with self._thinking():
                if not self._launch():
                    break

    def _wants_more(self) -> bool:
        """No task is thought of twice at once only to keep builders busy."""
        if len(self.in_flight) < _DEPTH:
            return True
        flying = sum(len(flight.programs) for flight in self.in_flight)
        idle = set(self.scheduler.active) - {flight.task for flight in self.in_flight}
        return bool(idle) and flying < _PER_BUILDER * self.measurer.builds_at_once

    def _launch(self) -> bool:
        """Submits the next batch, if there is one now."""
        trials = self._trials()
        left = self.budget.trials_left(trials)
        secs = self.budget.secs_left(self.scheduler.tasks)
        spared, spared_secs = self._spared()
        if (spared and left <= spared) or (secs is not None and 0 < spared_secs >= secs):
            self.stopped = "earlier runs did the rest"
            return False
        if left == 0 or (secs is not None and secs <= self._landing_secs()):
            self.stopped = "all trials used" if left == 0 else "time is up"
            return False
        busy = {flight.task for flight in self.in_flight}
        unvisited = self._unvisited()
        if self.reuse.tasks and unvisited and unvisited <= busy:
            return False  # their first results say whether there is anything left to do
        index = self.scheduler.pick(busy)
        if index is None:
            if not self.in_flight:
                self.stopped = "nothing left to try"
            return False
        task = self.tasks[index]
        proposals = self._propose(task, min(left - spared, self.scheduler.size(index)))
        if proposals:
            self._submit(index, proposals)
        return True  # else the task is over: ask for another

    def _spared(self) -> tuple[int, float]:
        """Trials and seconds that other runs spent on these tasks and that count to the limits,
        once every task was visited."""
        if self._unvisited():
            return 0, 0.0
        trials, secs = self.config.trials or 0, self.config.limit_secs or 0.0
        return counted(self.scheduler.tasks, trials, secs)

    def _unvisited(self) -> set[int]:
        """Tasks without a result yet."""
        tasks = self.scheduler.tasks
        return {i for i, task in enumerate(tasks) if not (task.trials or task.over)}

    def _landing_secs(self) -> float:
        """What is in flight, and one more batch, will take to come back."""
        if not self.measured:
            return 0.0
        flying = sum(len(flight.programs) for flight in self.in_flight) + self.config.batch
        expected = flying * (time.monotonic() - self._first_submit) / self.measured
        # The first batches wait for the farm to come up: one must not conclude much from them.
        return min(expected, 0.1 * (self.config.limit_secs or 0.0))

    def _propose(self, task: TuningTask, n: int) -> list[Proposal]:
        try:
            with self._phase("space"):
                task.open()
            with self._phase("propose"):
                proposals = task.propose(n, self.proposer, self.first_rows)
        except Untunable as error:
            task.progress.over = f"{_UNTUNABLE}: {error}"
            self.announcer.on_note(f"{task.task.name} keeps its untuned kernel: {error}")
            return []
        if not proposals:
            task.progress.over = "every program of its space was tried"
        return proposals

    def _submit(
        self, index: int, proposals: list[Proposal], known: dict[str, Measurement] | None = None
    ) -> None:
        """`known` is given for a batch that an earlier sitting began."""
        task = self.tasks[index]
        programs = [task.program(p).id for p in proposals]
        known = dict(known or {})
        if self._next_number >= self._first_new:
            self.folder.begin(
                Pending(number=self._next_number, task=task.id, rows=task.named(proposals))
            )
        with self._phase("materialise"):
            missing = [p for p, i in zip(proposals, programs, strict=True) if i not in known]
            candidates = task.candidates(missing)
        flight = _Flight(
            number=self._next_number,
            task=index,
            proposals=proposals,
            programs=programs,
            known=known,
            ticket=self.measurer.submit(candidates),
            order=[candidate.program.id for candidate in candidates],
            phases=self._phases,
        )
        self._phases = {}
        self._first_submit = min(self._first_submit, time.monotonic())
        self._next_number += 1
        self.in_flight.append(flight)

    def _wait(self, flight: _Flight) -> list[Measurement]:
        """Results in the order of the proposals."""
        started = time.monotonic()
        results = dict(flight.known)
        for turn in range(_FAULT_TURNS):
            faulty = []
            for index, measurement in flight.ticket:
                self.faults.see(measurement)
                results[flight.order[index]] = measurement
                if measurement.status is Status.INFRA_ERROR:
                    faulty.append(measurement.program.id)
            if not faulty or turn == _FAULT_TURNS - 1:
                break
            self._again(flight, faulty)
        flight.phases["measure"] = time.monotonic() - started
        return [results[program] for program in flight.programs]

    def _again(self, flight: _Flight, programs: Sequence[str]) -> None:
        """What met a fault of the machine has not been tried."""
        pairs = zip(flight.proposals, flight.programs, strict=True)
        candidates = self.tasks[flight.task].candidates([p for p, i in pairs if i in programs])
        flight.order = [candidate.program.id for candidate in candidates]
        flight.ticket = self.measurer.submit(candidates)

    def _absorb(self, flight: _Flight, results: list[Measurement]) -> None:
        """A program that the machine failed again and again is no trial and teaches nothing."""
        task = self.tasks[flight.task]
        started = time.monotonic()
        before = task.progress.best
        tried = [r.status is not Status.INFRA_ERROR for r in results]
        flight.proposals = list(itertools.compress(flight.proposals, tried))
        results = list(itertools.compress(results, tried))
        self._learn(flight.task, results)
        flight.phases["learn"] = time.monotonic() - started
        self.measured += len(results)
        self.folder.finish(flight.number, self._line(flight, results))
        self._announce_batch(task, flight, results, before)
        if time.monotonic() - self._saved > _SAVE_SECS:
            self._saved = time.monotonic()
            self._write_best(self._leaders())

    def _learn(self, index: int, results: Sequence[Measurement]) -> None:
        self.tasks[index].add(results)
        self.learnt.add(results)
        self.scheduler.learn(index, results)
        check_known(self.tasks[index])
        self.proposer.update(results)
        before, self.ways = self.ways, settled(self.ways, self.tasks)
        if self.ways != before:
            weights = {task.id: task.task.weight for task in self.tasks}
            self.folder.choose(self.ways, weights, self.budget.elapsed())

    def _line(self, flight: _Flight, results: Sequence[Measurement]) -> dict[str, Any]:
        return {
            "secs": round(self.budget.elapsed(), 3),
            "trials": self.folder.trials + len(results),
            "phases": {name: round(secs, 4) for name, secs in flight.phases.items()},
            **announce.batch_line(self.tasks[flight.task], flight.proposals, results),
        }

    # -- going on where another process ended ---------------------------------------------

    def _recall(self) -> None:
        """Learns from every finished batch, in order, as if it had just been measured."""
        places = {task.id: index for index, task in enumerate(self.tasks)}
        stored: dict[str, Measurement] = {}
        if self.folder.batches or self.folder.pending:
            stored = {m.id: m for m in self.folder.store.measurements()}
        lost = 0
        told = time.monotonic()
        for number, line in enumerate(self.folder.batches):
            if time.monotonic() - told > _TELL_SECS:
                told = time.monotonic()
                done = f"{number} of {len(self.folder.batches)} batches"
                self.announcer.on_note(f"learning from earlier sittings: {done}")
            if line["task"] in places:  # else --tasks leaves it out this time
                index = places[line["task"]]
                self.tasks[index].proposed += 1
                ids = [p.get("measurement") for p in line["proposed"]]
                self._learn(index, [stored[i] for i in ids if i in stored])
                lost += sum(i not in stored for i in ids)
        if lost:
            self.announcer.on_note(f"{lost} measurements are gone from the run's store")
        learnt = {p.get("measurement") for line in self.folder.batches for p in line["proposed"]}
        self._unclaimed = {
            m.program.id: m
            for m in stored.values()
            if m.id not in learnt and m.origin != FINALIST and m.status is not Status.INFRA_ERROR
        }
        numbers = [int(line["batch"]) for line in self.folder.batches]
        numbers += [pending.number for pending in self.folder.pending]
        self._first_new = max(numbers, default=-1) + 1

    def _resubmit(self) -> None:
        """What was begun is finished, as far as --trials, which may be lower now, allows."""
        places = {task.id: index for index, task in enumerate(self.tasks)}
        left = self.budget.trials_left(self._trials() + len(self._unclaimed))
        for pending in list(self.folder.pending):
            if pending.task not in places:
                continue
            index = places[pending.task]
            affordable = []
            for proposal in self.tasks[index].place(pending.rows):
                known = self.tasks[index].program(proposal).id in self._unclaimed
                if known or left > 0:
                    affordable.append(proposal)
                    left -= not known
            if affordable:
                self._next_number = pending.number
                self._submit(index, affordable, self._unclaimed)
        self._next_number = self._first_new
        self._adopt()

    def _adopt(self) -> None:
        """Measurements of this run that no file of it names any more: learnt, as a batch each."""
        claimed = {program for flight in self.in_flight for program in flight.programs}
        for index, task in enumerate(self.tasks):
            mine = [m for i, m in self._unclaimed.items() if i not in claimed]
            mine = [m for m in mine if m.program.workload.id == task.id]
            if not mine:
                continue
            self._learn(index, mine)
            proposals = [
                Proposal(sketch=0, row=m.program.decisions, origin=m.origin, score=math.nan)
                for m in mine
            ]
            line = announce.batch_line(task, proposals, mine)
            secs = {"secs": round(self.budget.elapsed(), 3), "phases": {}}
            trials = self.folder.trials + len(mine)
            self.folder.finish(self._next_number, {**secs, "trials": trials, **line})
            self._next_number += 1

    def _salvage(self) -> None:
        """After Ctrl-C, what batches in flight have measured counts for the best so far."""
        self.measurer.settle()
        flying = {i: self.tasks[f.task] for f in self.in_flight for i in f.programs}
        for measurement in self.folder.store.measurements():
            tried = measurement.status is not Status.INFRA_ERROR
            if measurement.program.id in flying and tried and measurement.origin != FINALIST:
                flying[measurement.program.id].measurements.append(measurement)
                self.measured += 1

    # -- the end --------------------------------------------------------------------------

    def _finish(self) -> dict[str, Winner]:
        interrupted = self.stopped == "interrupted"
        winners = self._leaders()
        ended = self.folder.best_is_whole and self.folder.earlier_state == "finished"
        if not interrupted and (self.measured or not ended):
            self._name_the_neglected()
            self._write_best(winners)  # should the finalists be interrupted
            winners = self._play_off()
        if self.measured or not ended:
            self._write_best(winners)
        state = "interrupted" if self.stopped == "interrupted" else "finished"
        self.folder.write_state(state, self.budget.elapsed())
        self.announcer.on_end(
            Ended(
                tasks=[task.line() for task in self._used()],
                state=state,
                reason=self.stopped,
                trials=self._trials(),
                secs=self.budget.elapsed(),
            )
        )
        return winners

    def _name_the_neglected(self) -> None:
        """A best of one or two programs is hardly one."""
        few = [
            t.task.name for t in self._used() if t.progress.trials < FEWEST and not t.progress.over
        ]
        if few:
            names = f"{', '.join(few[:4])}{', ...' if len(few) > 4 else ''}"
            self.announcer.on_note(f"{len(few)} tasks had fewer than {FEWEST} trials: {names}")

    def _play_off(self) -> dict[str, Winner]:
        leading = {t.id: leaders(t.measurements, self.config.finalists) for t in self._used()}
        at_stake = {t.id: t.progress.share for t in self._used()}
        chosen = affordable(leading, self.budget.finalists(self.scheduler.tasks), at_stake)
        n = sum(map(len, chosen.values()))
        self.announcer.on_note(f"{n} finalists of {len(chosen)} tasks are timed again, in turns")
        first = self._leaders()
        try:
            winners = remeasure(
                self.measurer,
                chosen,
                self.config.rounds,
                self._time_for_a_turn,
                {} if self.measured else self._turns_taken(),
            )
        except Cancelled:
            return first
        return {id_: w for id_, w in first.items() if id_ not in chosen} | winners

    def _used(self) -> list[TuningTask]:
        """Tasks that the network has, as far as that is decided."""
        return [task for task in self.tasks if task.task.weight]

    def _leaders(self) -> dict[str, Winner]:
        return {t.id: w for t in self._used() if (w := _leader(t)) is not None}

    def _turns_taken(self) -> dict[str, list[Measurement]]:
        """By a sitting that ended among the finalists: what was timed after the last trial."""
        rows = [m for m in self.folder.store.measurements() if m.status is not Status.INFRA_ERROR]
        last = max((m.time for m in rows if m.origin != FINALIST), default=0.0)
        turns: dict[str, list[Measurement]] = {}
        for row in rows:
            if row.origin == FINALIST and row.time >= last:
                turns.setdefault(row.program.id, []).append(row)
        return turns

    def _time_for_a_turn(self) -> bool:
        interrupted = self.stopped == "interrupted"
        return not interrupted and self.budget.time_for_a_turn(self.scheduler.tasks)

    def _write_best(self, winners: dict[str, Winner]) -> None:
        """A program that `--trials 0` chose stays until one of its task was measured."""
        measured = {task.id for task in self.tasks if task.measurements}
        before = self.folder.optional(BEST)
        chosen = {
            id_: entry
            for id_, entry in before.items()
            if entry.get("latency") is None and id_ not in measured
        }
        self.folder.write_best({**chosen, **announce.best_entries(self.tasks, winners)})

    # -- telling --------------------------------------------------------------------------

    def _trials(self) -> int:
        learnt = sum(task.progress.trials for task in self.tasks)
        return learnt + sum(len(flight.programs) for flight in self.in_flight)

    def _announce_start(self) -> None:
        self.announcer.on_start(
            announce.started(self.folder, self.tasks, self._trials(), self.config)
        )

    def _announce_batch(
        self, task: TuningTask, flight: _Flight, results: Sequence[Measurement], before: float
    ) -> None:
        trials = sum(t.progress.trials for t in self.tasks)
        self.announcer.on_batch(
            BatchDone(
                task=task.line(),
                trials=trials,
                secs=self.budget.elapsed(),
                left=self.budget.estimate_left(trials, self.scheduler.tasks),
                measurements=results,
                phases=dict(flight.phases),
            )
        )
        best = announce.new_best(task, results, before)
        if best is not None:
            self.announcer.on_best(best)
        if task.progress.over:
            self.announcer.on_note(f"{task.task.name}: {task.progress.over}")

    @contextlib.contextmanager
    def _thinking(self) -> Iterator[None]:
        """Keeps what is in flight from being timed meanwhile; calls may nest."""
        if self._held or not self.in_flight:
            yield
            return
        self._held = True
        try:
            with self.measurer.thinking():
                yield
        finally:
            self._held = False

    @contextlib.contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self._phases[name] = self._phases.get(name, 0.0) + time.monotonic() - started


def _leader(task: TuningTask) -> Winner | None:
    fastest = leaders(task.measurements, 1)
    return Winner(measurement=fastest[0], latency=fastest[0].latency) if fastest else None
