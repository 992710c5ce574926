"""Which task deserves the next batch: the one whose expected gain, over its cost, is largest.

Every task is visited once, the costliest first: any schedule beats none by far more than another
batch can gain. Everything follows from measurements: the same ones give the same order of tasks.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from tensorese.records.nouns import Measurement, Status

NOISE = 0.01
"""A smaller relative improvement is none."""
_HOPELESS = 32  # trials without one that ran
_UNTUNED = 10.0  # how many times slower a kernel without any schedule is, roughly
_DOUBLING = 0.15  # what twice the trials improve a latency by, roughly
_CATCHING_UP = 0.3  # share of the distance to similar tasks that one expects to close
_WINDOW = 32  # trials over which recent improvement is looked at
_GFLOPS, _GBYTES = 20e9, 5e9  # guesses until something was measured
_NEGLIGIBLE = 0.005
_SMALL_BATCH = 4
AGAIN = 3
"""Programs of other runs that are measured again, of each task that they know."""


@dataclass
class Progress:
    """A task's trials so far, as the scheduler sees them."""

    name: str
    operator: str
    weight: int
    flops: float
    bytes: float
    best: float = math.inf
    trials: int = 0
    valid: int = 0
    failures: int = 0
    secs: float = 0.0
    """Building and running, all trials together."""
    stale: int = 0
    """Trials since the last improvement."""
    curve: list[tuple[int, float]] = field(default_factory=list)
    """(trials, best) after every batch."""
    over: str = ""
    """Why it gets no more trials; empty while it may."""
    earlier: int = 0
    """Trials of other runs, whose best programs are measured first."""
    earlier_secs: float = 0.0
    """Wall-clock that those took."""
    known: float = math.inf
    """The best latency of those, as it was then."""

    def add(self, measurements: Sequence[Measurement]) -> None:
        for measurement in measurements:
            self.trials += 1
            self.stale += 1
            self.secs += measurement.cost_secs
            if measurement.status is Status.OK:
                self.valid += 1
                if measurement.latency < self.best * (1 - NOISE):
                    self.stale = 0
                self.best = min(self.best, measurement.latency)
            elif measurement.status is not Status.CENSORED:
                self.failures += 1
        self.curve.append((self.trials, self.best))

    @property
    def share(self) -> float:
        """Seconds of a network's run spent here, known or guessed."""
        likely = self.known if self.earlier else self.guess()
        return self.weight * (self.best if self.valid else likely)

    def guess(self, gflops: float = _GFLOPS) -> float:
        return max(self.flops / gflops, self.bytes / _GBYTES)

    def recent(self) -> float:
        """Seconds gained per trial lately."""
        before = [(n, s) for n, s in self.curve if n <= self.trials - _WINDOW and s < math.inf]
        first = before[-1] if before else next((p for p in self.curve if p[1] < math.inf), None)
        if first is None or self.trials == first[0]:
            return 0.0
        return (first[1] - self.best) / (self.trials - first[0])


class Scheduler:
    """`pick` names a task by its place in `tasks`; `None` when nothing is left to do."""

    def __init__(
        self,
        tasks: Sequence[Progress],
        *,
        batch: int = 16,
        first: int = 16,
        early_stopping: int = 0,
        by_time: bool = False,
    ) -> None:
        self.tasks = list(tasks)
        self.batch = batch
        self.first = max(1, min(first, batch))
        """Candidates of a task's first batch: few where a small budget must reach every task."""
        self.early_stopping = early_stopping
        self.by_time = by_time
        """Gain per second instead of per trial: for runs that a clock ends."""

    @property
    def active(self) -> list[int]:
        return [i for i, task in enumerate(self.tasks) if not task.over]

    def pick(self, busy: Collection[int] = ()) -> int | None:
        """Never one of `busy`, whose results are still being learnt from, unless it is alone."""
        alone = len(self.active) == 1
        free = [i for i in self.active if alone or i not in busy]
        free = [i for i in free if not self.tasks[i].trials] or free
        return max(free, key=lambda i: (self.gain(i), -i), default=None)

    def gain(self, index: int) -> float:
        """Expected seconds saved in a network's run, per trial or per second."""
        task = self.tasks[index]
        cost = self._cost(task)
        if not task.trials:
            return task.share
        if not task.valid:  # nothing ran yet: still optimistic, less each time
            return _UNTUNED * task.share / (1 + task.trials) / cost
        behind = max(0.0, task.best - self._similar(task))
        expected = _DOUBLING * task.best + _CATCHING_UP * behind
        expected /= task.trials + task.earlier
        return task.weight * max(0.5 * task.recent(), expected) / cost

    def size(self, index: int) -> int:
        """How many candidates a task's next batch should have."""
        task = self.tasks[index]
        total = sum(other.share for other in self.tasks) or 1.0
        size = self.batch if task.trials else self.first
        if task.earlier and not task.trials:
            return min(size, AGAIN)
        if task.share / total < _NEGLIGIBLE:
            size = min(size, _SMALL_BATCH)
        if len(self.active) == 1:
            # Two halves are in flight: what one teaches is there when the next is thought of.
            size = max(1, size // 2)
        return size

    def learn(self, index: int, measurements: Sequence[Measurement]) -> None:
        task = self.tasks[index]
        task.add(measurements)
        if task.over:
            return
        if not task.valid and task.trials >= _HOPELESS:
            task.over = f"dead end: none of {task.trials} candidates ran"
        elif self.early_stopping and task.stale >= self.early_stopping:
            task.over = f"stopped early: no improvement in {task.stale} trials"

    def _cost(self, task: Progress) -> float:
        if not self.by_time:
            return 1.0
        known = [t.secs / t.trials for t in self.tasks if t.trials and t.secs > 0]
        mean = sum(known) / len(known) if known else 1.0
        # Half the mean stands for what every trial costs besides building and running.
        own = task.secs / task.trials if task.trials and task.secs > 0 else mean
        return 0.5 * mean + own

    def _similar(self, task: Progress) -> float:
        """What the best rate of a like task would mean for this one."""
        rates = [
            other.flops / other.best
            for other in self.tasks
            if other.operator == task.operator and other.valid and other is not task
        ]
        return task.guess(max(rates)) if rates and max(rates) > 0 else task.best
