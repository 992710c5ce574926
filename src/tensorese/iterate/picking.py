"""Which tasks get the next batch: those whose programs still get faster, weighted by their use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

WINDOWS = range(3, 100)
"""Visits of a task that its gain is taken over: the shortest for which enough tasks gained."""


@dataclass(frozen=True, kw_only=True)
class TaskHistory:
    """What is known of a task when a batch is planned."""

    workload: str
    weight: float = 1.0
    flops: float = 0.0
    visits: int = 0
    """Batches that had programs of it, those that are not measured yet included."""
    bests: Sequence[float] = field(default=())
    """Its best latency after each visit that is measured; infinite while nothing ran."""

    def gain(self, window: int) -> float:
        """Seconds of the network saved within the window. One that was visited less often than
        that counts in full: it may yet gain."""
        if not self.bests:
            return 0.0  # under way: nobody knows
        now = self.bests[-1]
        if len(self.bests) <= window:
            return self.weight * now
        before = self.bests[-1 - window]
        if math.isinf(now):
            return 0.0  # nothing ran in all that time
        return math.inf if math.isinf(before) else self.weight * (before - now)


def pick_tasks(histories: Sequence[TaskHistory], n: int) -> list[str]:
    """`n` tasks: those never visited first, then by gain; none that has nothing to gain, while
    there are others."""
    fresh = [task for task in histories if not task.visits]
    known = [task for task in histories if task.visits]
    window = next(
        (w for w in WINDOWS if sum(task.gain(w) > 0 for task in known) + len(fresh) >= n),
        WINDOWS[-1],
    )
    fresh.sort(key=lambda task: (-task.weight * task.flops, task.workload))
    known.sort(key=lambda task: (-task.gain(window), task.visits, task.workload))
    return [task.workload for task in (*fresh, *known)][:n]


def shares(picked: Sequence[str], per_task: int, left: int | None) -> list[tuple[str, int]]:
    """So many programs of each; `left` is what the budget allows in all."""
    planned = []
    for workload in picked:
        n = per_task if left is None else min(per_task, left)
        if n > 0:
            planned.append((workload, n))
            left = None if left is None else left - n
    return planned


def weighted_sum(best: Mapping[str, float], weights: Mapping[str, float]) -> float:
    return sum(weights[workload] * secs for workload, secs in best.items())


def gain_of(
    before: Mapping[str, float], after: Mapping[str, float], weights: Mapping[str, float]
) -> float | None:
    """Share of the weighted sum that a round saved; None when a task came new to it."""
    if not before or after.keys() - before.keys():
        return None
    was = weighted_sum(before, weights)
    return (was - weighted_sum(after, weights)) / was
