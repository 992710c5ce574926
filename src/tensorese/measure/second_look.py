"""The contenders of a batch are timed again, later and in turn, before they are recorded.

Minutes of tuning hang on which of a few close programs is called the best, and a busy host slows
one of them for seconds at a time. So whoever is close to the best of its batch is kept until the
rest is done, timed again in turn with the other contenders, and recorded with the calm samples of
all looks; the disturbed ones are kept beside them. Where the sentinel says that the machine is not
calm, a look waits a little, but no batch for longer than `calm_secs`.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict

from tensorese.measure.base import Ticket
from tensorese.measure.config import FarmConfig
from tensorese.measure.jobs import Job
from tensorese.measure.timing import split_calm
from tensorese.measure.wire import Message


class SecondLook:
    """Holds contenders per batch. The director tells it what ends and asks who runs again."""

    def __init__(self, config: FarmConfig, kind: str) -> None:
        # A GPU's times repeat to a thousandth; TVM's fixed rule is for comparisons with TVM.
        self.looks = config.looks if kind == "llvm" and config.timing.number == 0 else 0
        self.ratio = config.look_ratio
        self.least = config.look_least
        self.calm = config.timing.calm
        self.open: Counter[Ticket] = Counter()  # jobs of a batch that have not been timed yet
        self.held: defaultdict[Ticket, list[Job]] = defaultdict(list)
        self.racing: dict[Ticket, list[Job]] = {}
        self.calm_secs = config.calm_secs
        self.waited: defaultdict[Ticket, float] = defaultdict(float)
        self.verify = config.verify == "best"

    def expect(self, job: Job) -> None:
        self.open[job.ticket] += 1

    def wants(self, job: Job, reply: Message) -> bool:
        """Whether a job just timed may still turn out the best of its batch."""
        limit = self.ratio * job.bests.get(job.workload_id, 0.0)
        return bool(self.looks and job.ticket.n > 1 and statistics.median(reply["secs"]) <= limit)

    def hold(self, job: Job) -> None:
        self.held[job.ticket].append(job)

    def timed(self, job: Job) -> None:
        """The first timing of a job is over, whatever came of it."""
        if not job.timed:
            job.timed = True
            self.open[job.ticket] -= 1

    def due(self, ticket: Ticket) -> tuple[list[Job], list[Job]]:
        """Who is timed again, and who has lost meanwhile; both empty while the batch is at work."""
        if self.open[ticket] > 0:
            return [], []
        del self.open[ticket]
        again: list[Job] = []
        lost: list[Job] = []
        limit = max(self.least, ticket.n // 6)
        for job in sorted(self.held.pop(ticket, []), key=_latency):
            contends = self.wants(job, job.run) and len(again) < limit
            (again if contends else lost).append(job)
        for job in again:
            job.looks = self.looks
            job.built_at = time.monotonic()
        if again:
            self.racing[ticket] = again
        return again, lost

    def may_wait(self, job: Job) -> bool:
        """Whether this is another look, and its batch has time left to wait for a calm machine."""
        return bool(job.run) and self.waited[job.ticket] < self.calm_secs

    def seen(self, job: Job, reply: Message) -> None:
        """Adds the samples of another look at a contender: the calmest samples are its time."""
        both = [*job.run["secs"], *reply["secs"]]
        job.run["secs"], disturbed = split_calm(both, self.calm)
        known = (*job.run.get("disturbed", ()), *reply.get("disturbed", ()))
        job.run["disturbed"] = [*known, *disturbed]
        job.run["verification"] = reply.get("verification") or job.run.get("verification", {})
        job.looks -= 1

    def settled(self, ticket: Ticket) -> tuple[list[Job], list[Job]]:
        """Who must run once more, and, when all looks are over, everybody to be recorded.

        The order may have changed: whoever is best now is verified as the first best was.
        """
        racing = self.racing.get(ticket, [])
        if any(job.looks > 0 for job in racing):
            return [], []
        racing.sort(key=_latency)
        if racing and self._is_unchecked(racing[0]):
            racing[0].looks, racing[0].check = 1, True
            return racing[:1], []
        self.waited.pop(ticket, None)
        return [], self.racing.pop(ticket, [])

    def _is_unchecked(self, job: Job) -> bool:
        checked = job.run.get("verification") or job.check
        return self.verify and not checked and bool(job.candidate.program.workload.module)

    def dropped(self, job: Job) -> None:
        """A contender failed after all; the others go on without it."""
        racing = self.racing.get(job.ticket, [])
        if job in racing:
            racing.remove(job)

    def forget(self) -> list[Job]:
        """Everybody held: their programs are gone, what is known about them is not."""
        jobs = [j for held in (*self.held.values(), *self.racing.values()) for j in held]
        self.held.clear()
        self.racing.clear()
        self.waited.clear()
        return jobs


def _latency(job: Job) -> float:
    return float(statistics.median(job.run["secs"]))
