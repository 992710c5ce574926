"""The fastest programs of each task timed again, in turns, before one is called the best.

A search that looks at a hundred noisy timings ends with the luckiest of them. Timed again side by
side, with the machine in one and the same mood for all, the finalists show what they are.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tensorese.measure.base import FINALIST, Candidate, Measurer
from tensorese.records.nouns import Measurement, Status

DISQUALIFIED = (Status.INVALID, Status.BUILD_ERROR, Status.RUN_ERROR, Status.WRONG_OUTPUT)
_NEAR = 1.25  # times the best: what was slower than that was not unlucky


@dataclass(frozen=True, kw_only=True)
class Winner:
    """A task's best program. `latency` is the median of its turns, or of its one measurement."""

    measurement: Measurement
    latency: float
    remeasured: tuple[float, ...] = ()
    others: tuple[Winner, ...] = ()
    """The other finalists, the fastest first."""


def leaders(measurements: Iterable[Measurement], n: int) -> list[Measurement]:
    """Up to `n` distinct programs, fastest first, none far behind the best."""
    valid = sorted((m for m in measurements if m.status is Status.OK), key=lambda m: m.latency)
    distinct: dict[str, Measurement] = {}
    for measurement in valid:
        distinct.setdefault(measurement.program.id, measurement)
    fastest = list(distinct.values())[:n]
    return [m for m in fastest if m.latency <= _NEAR * fastest[0].latency]


def affordable(
    leading: Mapping[str, Sequence[Measurement]], most: int, at_stake: Mapping[str, float]
) -> dict[str, Sequence[Measurement]]:
    """The tasks whose leaders are timed again, `most` programs in all: first those with a choice,
    by seconds of a network's run."""
    order = sorted(leading, key=lambda task: (len(leading[task]) < 2, -at_stake[task]))
    chosen: dict[str, Sequence[Measurement]] = {}
    for task in order:
        most -= len(leading[task])
        if most < 0:
            break
        chosen[task] = leading[task]
    return {task: chosen[task] for task in leading if task in chosen}


def remeasure(
    measurer: Measurer,
    chosen: Mapping[str, Sequence[Measurement]],
    rounds: int,
    keep_going: Callable[[], bool] = lambda: True,
    known: Mapping[str, Sequence[Measurement]] | None = None,
) -> dict[str, Winner]:
    """`chosen` lists every task's leaders, fastest first; one turn goes over all of them.

    `known` are turns by program id that a sitting had taken when it was killed.
    """
    candidates = [
        Candidate(program=m.program, origin=FINALIST) for ms in chosen.values() for m in ms
    ]
    turns = {c.program.id: list((known or {}).get(c.program.id, ())) for c in candidates}
    for turn in range(rounds):
        missing = [c for c in candidates if len(turns[c.program.id]) <= turn]
        if not missing:
            continue
        if turn and not keep_going():
            break
        for measurement in measurer.measure(missing):
            turns[measurement.program.id].append(measurement)
    winners = {task: best_of(ms, turns) for task, ms in chosen.items()}
    return {task: winner for task, winner in winners.items() if winner is not None}


def best_of(
    chosen: Sequence[Measurement], turns: Mapping[str, Sequence[Measurement]]
) -> Winner | None:
    """The lowest median. A program that failed is out; None when none is left.

    One that was only too slow to build or run once has met a busy moment: it did both before.
    """
    standing = []
    for first in chosen:
        again = turns.get(first.program.id, ())
        if any(m.status in DISQUALIFIED for m in again):
            continue
        timed = [m for m in again if m.status is Status.OK]
        times = tuple(m.latency for m in timed)
        checked = next((m for m in timed if m.verification), first)
        latency = statistics.median(times) if times else first.latency
        standing.append(Winner(measurement=checked, latency=latency, remeasured=times))
    standing.sort(key=lambda winner: winner.latency)
    return replace(standing[0], others=tuple(standing[1:])) if standing else None
