"""The local farm: warm build workers, isolated runners, one thread that directs them.

`submit` hands candidates to the directing thread and returns. That thread alone talks to the
workers: it gives out builds and runs, keeps time limits, replaces what dies, decides when
builders must stand still for a timed run, journals each result and only then hands it out.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections import deque
from collections.abc import Mapping, Sequence

from tensorese.errors import MeasureError
from tensorese.measure.base import Candidate, Journal, Measurer, Ticket
from tensorese.measure.config import CorePlan, FarmConfig, plan_cores
from tensorese.measure.director import Director
from tensorese.measure.jobs import Job
from tensorese.measure.lowering import LowerJob, LowerTicket
from tensorese.records.nouns import Platform, Program
from tensorese.targets import Target, usable_cores


class Farm(Measurer):
    """Measures on this machine."""

    def __init__(
        self,
        target: Target,
        config: FarmConfig | None = None,
        *,
        platform: Platform | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.target = target
        self.config = config or FarmConfig()
        self.platform = platform or target.platform()
        self.journal = journal
        self.kind = self._kind()
        self.plan = self._plan_cores()
        self.best: dict[str, float] = {}
        """Best latency known per workload; hopeless candidates are cut short against it."""
        self._inbox: deque[Job | LowerJob] = deque()
        self._ids = itertools.count()
        self._closing = False
        self.cancelled = False
        self.settled = threading.Event()
        """Set once nothing is timed any more after `cancel`."""
        self._failure: BaseException | None = None
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._director = self._make_director()
        self._thread = threading.Thread(target=self._direct, name="tensorese-farm", daemon=True)
        self._thread.start()

    def _kind(self) -> str:
        return self.target.kind

    def _plan_cores(self) -> CorePlan:
        return plan_cores(self.target, self.config, usable_cores())

    def _make_director(self) -> Director:
        return Director(self)

    @property
    def drift(self) -> float:
        """The sentinel's latest time over its first; 1 on a steady machine."""
        return self._director.sentinel.drift

    @property
    def builds_at_once(self) -> int:
        return self.config.build_workers or len(self.plan.builders)

    def submit(self, candidates: Sequence[Candidate]) -> Ticket:
        if self._closing:
            raise MeasureError("a closed farm cannot measure; create another")
        ticket = Ticket(len(candidates))
        bests = self._shared_bests()
        for index, candidate in enumerate(candidates):
            self._inbox.append(Job(next(self._ids), index, candidate, ticket, bests))
        if self._failure is not None:
            ticket.put(self._failure)
        self._wake()
        return ticket

    def lower(self, programs: Sequence[Program]) -> LowerTicket:
        """Features of the lowered programs, by the workers that build; nothing is run."""
        if self._closing:
            raise MeasureError("a closed farm cannot lower programs; create another")
        ticket = LowerTicket(len(programs))
        for index, program in enumerate(programs):
            self._inbox.append(LowerJob(next(self._ids), index, program, ticket))
        if self._failure is not None:
            ticket.put(self._failure)
        self._wake()
        return ticket

    def _shared_bests(self) -> dict[str, float]:
        """The best latencies that a batch's candidates are held against: its own."""
        return {}

    def know_best(self, latencies: Mapping[str, float]) -> None:
        for workload, secs in latencies.items():
            self.best[workload] = min(secs, self.best.get(workload, secs))

    def cancel(self) -> None:
        self.cancelled = True
        self._wake()

    def settle(self) -> None:
        self.settled.wait()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._wake()
            self._thread.join()
            os.close(self._wake_read)
            os.close(self._wake_write)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"x")

    def _direct(self) -> None:
        try:
            self._director.run()
            self._director.fail_all(MeasureError("closed before everything was measured"))
        except BaseException as error:
            self._failure = error
            self._director.fail_all(error)
        finally:
            self.settled.set()  # nobody waits for a thread that has ended
            self._director.crew.close()
