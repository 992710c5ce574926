"""The farm's directing thread: gives out work, keeps limits, replaces what dies, journals results.

It alone talks to the workers. Everything here runs in that one thread.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import selectors
import statistics
import time
from collections import deque
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from tensorese.errors import MeasureError
from tensorese.features.lowered import LowerStatus, no_rows
from tensorese.measure.base import Cancelled, Ticket
from tensorese.measure.crew import Crew, Worker, take_crew
from tensorese.measure.faults import EXIT_CODE, MachineFault, full_disk
from tensorese.measure.jobs import Job, Recorder, death_of
from tensorese.measure.lowering import LowerJob, from_death, from_reply
from tensorese.measure.second_look import SecondLook
from tensorese.measure.sentinel import Sentinel
from tensorese.measure.wire import Message, receive
from tensorese.records.nouns import Measurement, Status

if TYPE_CHECKING:
    from tensorese.measure.farm import Farm

_MAX_IDLE_DEATHS = 5  # workers that die before finishing anything: the machine's fault, give up
_MAX_FOREMEN = 3
_PAUSE_SECS = 0.2  # between two questions whether the machine is calm


class Director:
    """The directing thread's state; no other thread touches it while it runs."""

    run_role = "run"

    def __init__(self, farm: Farm) -> None:
        self.farm = farm
        self.config = farm.config
        self.plan = farm.plan
        self.crew = take_crew(farm.kind)
        self.workers: dict[int, Worker] = {}
        self.requested: dict[int, tuple[str, int]] = {}  # a worker's tag to its role and lane
        self.tags = itertools.count()
        self.to_build: deque[Job] = deque()
        self.built: deque[Job] = deque()
        self.to_lower: deque[LowerJob] = deque()
        self.timing_phase = False
        self.idle_deaths = 0
        self.foremen = 1
        self.sentinel = Sentinel(self.config, farm.target, self.plan.lanes)
        self.calm_at = 0.0  # when to check again whether the machine is calm
        self.second_look = SecondLook(self.config, farm.kind)
        self.selector = selectors.DefaultSelector()

    # -- the loop -------------------------------------------------------------------------

    def run(self) -> None:
        self._start_crew()
        self.selector.register(self.farm._wake_read, selectors.EVENT_READ, self._on_wake)
        while not self.farm._closing:
            self._dispatch()
            for key, _ in self.selector.select(self._until_next_deadline()):
                key.data(key.fileobj)
            self._enforce_limits()

    def _start_crew(self) -> None:
        self.crew.wait_ready()
        self.recorder = Recorder(
            platform=self.farm.platform,
            config=self.config,
            toolchain=self.crew.toolchain,
            threads=self.plan.threads,
        )
        self.selector.register(self.crew.control, selectors.EVENT_READ, self._on_notice)
        for _ in range(self.farm.builds_at_once):
            self._ask("build", 0)
        self._start_runners()

    def _start_runners(self) -> None:
        for lane in range(len(self.plan.lanes)):
            self._ask("run", lane)

    def _ask(self, role: str, lane: int) -> None:
        tag = next(self.tags)
        self.requested[tag] = (role, lane)
        self.crew.ask_for({"tag": tag, "role": role, **self._settings(role, lane)})

    def _settings(self, role: str, lane: int) -> Message:
        memory = int(self.config.memory_gib * 2**30)
        running = role == "run"
        return {
            "kind": self.farm.kind,
            "scratch": str(self.crew.scratch),
            "cores": self.plan.lanes[lane] if running else self.plan.builders,
            "threads": self.plan.threads if running else 1,
            # CUDA reserves the whole GPU's address space: a limit would break the driver.
            "memory_bytes": 0 if running and self.farm.kind != "llvm" else memory,
        }

    def _until_next_deadline(self) -> float | None:
        now = time.monotonic()
        times = [w.deadline for w in self.workers.values() if w.job and not w.paused_at]
        if self.plan.exclusive and self.built and not self.timing_phase:
            times.append(self.built[0].built_at + self.config.run_wait)
        if self.calm_at > now:
            times.append(self.calm_at)
        return max(0.0, min(times) - now) if times and min(times) < math.inf else None

    def _on_wake(self, _: Any) -> None:
        os.read(self.farm._wake_read, 4096)
        while self.farm._inbox:
            job = self.farm._inbox.popleft()
            if isinstance(job, LowerJob):
                self.to_lower.append(job)
                continue
            self.second_look.expect(job)
            self.to_build.append(job)

    # -- processes ------------------------------------------------------------------------

    def _on_notice(self, _: Any) -> None:
        try:
            message, fds = self.crew.notice()
        except (EOFError, ConnectionError):
            self._replace_crew()
            return
        if "spawned" in message:
            role, lane = self.requested.pop(message["tag"])
            worker = Worker(message["spawned"], role, lane, Connection(fds[0]))
            self.workers[worker.pid] = worker
            self.selector.register(worker.connection, selectors.EVENT_READ, self._on_reply)
        else:
            self._on_exit(message["exited"], message["code"])

    def _replace_crew(self) -> None:
        """The foreman was killed; its workers died with it. Everything in flight starts over."""
        self.foremen += 1
        if self.foremen > _MAX_FOREMEN:
            raise MeasureError(
                f"the farm's foreman died {_MAX_FOREMEN} times; run tensorese doctor"
            )
        self.selector.unregister(self.crew.control)
        lost = [w.job for w in self.workers.values() if w.job is not None]
        for worker in list(self.workers.values()):
            self._forget(worker)
        lost.extend(self.built)
        self.built.clear()
        self.requested.clear()
        self.sentinel.forget()
        self.timing_phase = False
        self.crew.close()
        self.crew = Crew(self.farm.kind)
        lost.extend(self.second_look.forget())
        for job in dict.fromkeys(lost):  # a contender may be held and at work
            if isinstance(job, Job) and job.run:
                self._finish(job, Status.OK, run=job.run)
            elif isinstance(job, Job):
                job.build = {}
                self._infra_fault(job, "the foreman was killed")
            elif isinstance(job, LowerJob):
                self._not_lowered(job, Status.INFRA_ERROR, "the foreman was killed")
        self._start_crew()

    def _on_exit(self, pid: int, code: int) -> None:
        worker = self.workers[pid]
        self._drain(worker)  # a reply sent just before the end still counts
        self._forget(worker)
        words = self.crew.last_words(pid)
        if worker.job is None:
            self.idle_deaths += not worker.retired
        if code == EXIT_CODE:
            if isinstance(worker.job, Job | LowerJob):
                worker.job.ticket.put(MachineFault(words))  # it is in no queue any more
            raise MachineFault(words)
        if self.idle_deaths > _MAX_IDLE_DEATHS:
            raise MeasureError(
                f"{worker.role} workers must stay alive when idle, but {self.idle_deaths} died "
                f"(exit code {code}: {words or 'silent'}); run tensorese doctor"
            )
        self._ask(worker.role, worker.lane)
        if isinstance(worker.job, Job | LowerJob):
            status, text = self._judge_death(worker, code)
            text += f": {words}" if words else ""
            status, text = self._blame(status, text)
            if isinstance(worker.job, LowerJob):
                self._not_lowered(worker.job, status, text)
            elif status is Status.INFRA_ERROR:
                self._infra_fault(worker.job, text)
            else:
                self._finish(worker.job, status, error=text)
        elif worker.job is not None:
            self.sentinel.failed()

    def _blame(self, status: Status, text: str) -> tuple[Status, str]:
        """A program that failed on a full disk has not been tried."""
        full = status in (Status.BUILD_ERROR, Status.RUN_ERROR) and full_disk(self.crew.scratch)
        return (Status.INFRA_ERROR, full) if full else (status, text)

    def _judge_death(self, worker: Worker, code: int) -> tuple[Status, str]:
        return death_of(worker.role, code, worker.overran)

    def _drain(self, worker: Worker) -> None:
        with contextlib.suppress(EOFError, OSError):
            while worker.job is not None and worker.connection.poll():
                self._handle(worker, receive(worker.connection))

    def _forget(self, worker: Worker) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(worker.connection)
        worker.connection.close()
        self.workers.pop(worker.pid, None)

    def _on_reply(self, connection: Any) -> None:
        worker = next((w for w in self.workers.values() if w.connection is connection), None)
        if worker is None:  # its exit notice came in the same round and was seen first
            return
        try:
            message = receive(worker.connection)
        except (EOFError, OSError):
            self.selector.unregister(connection)  # its exit notice follows and says why
            return
        self._handle(worker, message)

    def _handle(self, worker: Worker, message: Message) -> None:
        if "phase" in message:
            limits = {"reference": self.config.reference_timeout, "verify": self.config.run_timeout}
            worker.allow(limits[message["phase"]])
            return
        job, worker.job = worker.job, None
        worker.deadline = math.inf
        self.idle_deaths = 0
        self._recycle_if_worn(worker, message)
        if isinstance(job, LowerJob):
            job.finish(from_reply(message))
        elif not isinstance(job, Job):
            self.sentinel.on_reply(worker.role, message)
        elif worker.role == "build":
            self._on_built(job, message)
        else:
            self._on_run(job, message)

    def _recycle_if_worn(self, worker: Worker, message: Message) -> None:
        worker.base_rss = worker.base_rss or message["rss"]
        if worker.role == "run" and self.farm.kind != "llvm" and message["status"] == "run_error":
            worker.retire()  # an illegal access poisons the whole GPU context of that process
        elif message["rss"] - worker.base_rss > self.config.recycle_mib * 2**20:
            worker.retire()

    def _enforce_limits(self) -> None:
        now = time.monotonic()
        for worker in self.workers.values():
            if worker.job is not None and not worker.paused_at and now >= worker.deadline:
                worker.cut()

    # -- scheduling -----------------------------------------------------------------------

    def _dispatch(self) -> None:
        if self.farm.cancelled:
            self._drop_waiting()
        if self.plan.exclusive:
            self._choose_phase()
        if self.timing_phase or not self.plan.exclusive:
            self._dispatch_runs()
        if not self.timing_phase or not self.plan.exclusive:
            self._dispatch_builds()

    def _drop_waiting(self) -> None:
        """What has been timed is recorded, the rest is given up."""
        waiting = [*self.to_build, *self.built]
        self.to_build.clear()
        self.built.clear()
        at_work = {w.job for w in self.workers.values() if isinstance(w.job, Job)}
        contenders = [*self.second_look.forget(), *(job for job in waiting if job.run)]
        for job in dict.fromkeys(contenders):
            if job not in at_work:
                self._finish(job, Status.OK, run=job.run)
        for ticket in {job.ticket for job in waiting if not job.run}:
            ticket.put(Cancelled("cancelled before it was measured"))
        for lowering in {job.ticket for job in self.to_lower}:
            lowering.put(Cancelled("cancelled before it was lowered"))
        self.to_lower.clear()
        if not self._is_timing():
            self.farm.settled.set()

    def _is_timing(self) -> bool:
        return any(w.job for w in self.workers.values() if w.role == self.run_role)

    def _choose_phase(self) -> None:
        """Shared cores: either builders work or one program is timed, never both."""
        builders = [w for w in self.workers.values() if w.role == "build"]
        if self._is_timing():
            return
        building = any(w.job for w in builders)
        if self.timing_phase:
            self.timing_phase = bool(self.built)
        elif self.built:
            waited = time.monotonic() - self.built[0].built_at
            self.timing_phase = (
                len(self.built) >= self.config.run_batch
                or not (self.to_build or building)
                or waited >= self.config.run_wait
            )
        for worker in builders:
            if self.timing_phase and worker.job is not None:
                worker.pause()
            else:
                worker.resume()

    def _idle(self, role: str) -> list[Worker]:
        return [w for w in self.workers.values() if w.role == role and not w.job and not w.retired]

    def _dispatch_builds(self) -> None:
        for worker in self._idle("build"):
            if self.sentinel.wants_build:
                message = self.sentinel.build_message(str(self.crew.scratch))
                worker.give(self.sentinel, message, self.config.build_timeout)
            elif self.to_build:
                job = self.to_build.popleft()
                job.artifact = str(self.crew.scratch / f"{job.id}.so")
                message = job.build_message(self.farm.target)
                worker.give(job, message, self.config.build_timeout)
            else:
                self._give_lowering(worker)

    def _give_lowering(self, worker: Worker) -> None:
        """What is to be built comes first: somebody waits for its latency."""
        while self.to_lower:
            job = self.to_lower.popleft()
            if not job.ticket.cancelled:
                worker.give(job, job.message(self.farm.target), self.config.build_timeout)
                return

    def _dispatch_runs(self) -> None:
        for worker in self._idle(self.run_role):
            if not self.built:
                return
            if worker.lane == 0 and self.sentinel.is_due and not self.sentinel.ran_last:
                worker.give(self.sentinel, self.sentinel.run_message(), self.config.run_timeout)
                continue
            if worker.lane == 0 and self._waits_for_calm(worker):
                return
            self.sentinel.ran_last = False
            job = self._next_built()
            job.lane, job.co_runners = worker.lane, self._co_runners(worker)
            best = self.farm.best.get(job.workload_id, math.inf)
            worker.give(job, self._run_message(job, best), self.config.run_timeout)

    def _waits_for_calm(self, worker: Worker) -> bool:
        """Another look at a contender is worth something in a calm moment only."""
        job, now = self.built[0], time.monotonic()
        if not self.second_look.may_wait(job) or not self.sentinel.works:
            return False
        if now < self.calm_at:
            return True
        if not self.sentinel.is_fresh:
            worker.give(self.sentinel, self.sentinel.run_message(), self.config.run_timeout)
            return True
        if self.sentinel.is_calm:
            return False
        self.calm_at = now + _PAUSE_SECS
        self.second_look.waited[job.ticket] += _PAUSE_SECS
        return True

    def _co_runners(self, runner: Worker) -> int:
        """Processes at work beside this one; a paused builder is not."""
        others = (w for w in self.workers.values() if w is not runner)
        return sum(w.job is not None and not w.paused_at for w in others)

    def _next_built(self) -> Job:
        return self.built.popleft()

    def _run_message(self, job: Job, best: float) -> Message:
        message = job.run_message(self.config, best, self.farm.target)
        if job.run:
            message["verify"] = "all" if job.check else "none"
        return message

    # -- results --------------------------------------------------------------------------

    def _on_built(self, job: Job, reply: Message) -> None:
        job.build = reply
        status, error = self._blame(Status(reply["status"]), reply["error"])
        if status is Status.OK:
            job.built_at = time.monotonic()
            self.built.append(job)
        elif status is Status.INFRA_ERROR:
            self._infra_fault(job, error)
        else:
            self._finish(job, status, error=error)

    def _on_run(self, job: Job, reply: Message) -> None:
        status, error = self._blame(Status(reply["status"]), reply["error"])
        if status is Status.INFRA_ERROR:
            self._infra_fault(job, error)
            return
        if status is Status.OK:
            latency = statistics.median(reply["secs"])
            job.bests[job.workload_id] = min(latency, job.bests.get(job.workload_id, math.inf))
            known = self.farm.best.get(job.workload_id, math.inf)
            self.farm.best[job.workload_id] = min(latency, known)
            if self._is_looked_at_again(job, reply):
                return
        self._finish(job, status, error=error, run=reply)

    def _is_looked_at_again(self, job: Job, reply: Message) -> bool:
        """Keeps a contender, or sends it round once more; its samples are collected in `run`."""
        look = self.second_look
        if self.farm.cancelled:
            if job.run:
                look.seen(job, reply)  # forgotten with the others: nobody else ends it
                self._finish(job, Status.OK, run=job.run)
            return bool(job.run)
        if job.run:
            look.seen(job, reply)
            if job.looks > 0:
                self.built.append(job)
            else:
                self._settle(job.ticket)
            return True
        if not look.wants(job, reply):
            return False
        job.run = reply
        look.hold(job)
        self._end_of_timing(job)
        return True

    def _settle(self, ticket: Ticket) -> None:
        again, done = self.second_look.settled(ticket)
        self.built.extend(again)
        for job in done:
            self._finish(job, Status.OK, run=job.run)

    def _end_of_timing(self, job: Job) -> None:
        self.second_look.timed(job)
        again, lost = self.second_look.due(job.ticket)
        self.built.extend(again)
        for other in lost:
            self._finish(other, Status.OK, run=other.run)

    def _infra_fault(self, job: Job, text: str) -> None:
        job.attempts += 1
        if job.attempts > self.config.retries:
            self._finish(job, Status.INFRA_ERROR, error=f"{text} ({job.attempts} times)")
        elif job.build.get("status") == "ok":
            self.built.appendleft(job)
        else:
            self.to_build.appendleft(job)

    def _not_lowered(self, job: LowerJob, status: Status, text: str) -> None:
        job.attempts += 1
        if status is not Status.INFRA_ERROR:
            job.finish(from_death(status, text))
        elif job.attempts > self.config.retries:
            job.finish(no_rows(LowerStatus.INFRA_ERROR, f"{text} ({job.attempts} times)"))
        else:
            self.to_lower.appendleft(job)

    def _finish(
        self, job: Job, status: Status, *, error: str = "", run: Message | None = None
    ) -> None:
        measurement = self._record(job, status, error, run)
        with contextlib.suppress(OSError):
            os.unlink(job.artifact)
        if self.farm.journal is not None:
            try:
                self.farm.journal.append(measurement)
            except BaseException as error:
                job.ticket.put(error)  # no longer in any queue that `fail_all` looks into
                raise
        job.ticket.put((job.index, measurement))
        self._end_of_timing(job)
        if job.run:
            self.second_look.dropped(job)
            self._settle(job.ticket)

    def _record(self, job: Job, status: Status, error: str, run: Message | None) -> Measurement:
        return self.recorder.measurement(
            job,
            status,
            error=error,
            run=run,
            drift=round(self.sentinel.drift, 4),
            cores=list(self.plan.lanes[job.lane]),
        )

    def fail_all(self, error: BaseException) -> None:
        jobs: list[Job | LowerJob] = [*self.to_build, *self.built, *self.to_lower]
        jobs += [*self.farm._inbox, *self.second_look.forget()]
        jobs += [w.job for w in self.workers.values() if isinstance(w.job, Job | LowerJob)]
        for ticket in {job.ticket for job in jobs}:
            ticket.put(error)
