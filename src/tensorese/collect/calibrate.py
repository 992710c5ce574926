"""Which layout is quiet enough: programs timed alone, then side by side, and compared."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tensorese.collect.collector import CollectConfig
from tensorese.collect.farm import ISOLATED, Layout, layouts_for
from tensorese.collect.session import Session, collect
from tensorese.collect.tasklist import ListedTask
from tensorese.evaluation.noise import P90_LIMIT, Difference, difference, latencies
from tensorese.records.store import Store
from tensorese.targets import usable_cores

_PROGRAMS = 3  # of each task tried
_MOST_SECS = 25.0  # for one layout


def calibrate(
    session: Session,
    tasks: Sequence[ListedTask],
    say: Callable[[str], None],
    n_tasks: int = 28,
) -> Session:
    """The session with the fastest layout whose p90 difference from isolated runs is small.

    Small is under 5 %, or no more than isolated runs differ among themselves: on a machine that
    is itself unsteady, timing alone would cost much and gain nothing. Every layout measures the
    same programs, which are the first of each task's sequence.
    """
    candidates = layouts_for(session.target.threads, len(usable_cores()))
    if len(candidates) == 1 or not session.target.is_cpu:
        return session
    chosen = _spread(tasks, n_tasks)
    with tempfile.TemporaryDirectory(prefix="tensorese-calibrate-") as folder:
        places = (Path(folder) / str(number) for number in itertools.count())
        alone, _ = _trial(session, chosen, ISOLATED, next(places))
        again, rate = _trial(session, chosen, ISOLATED, next(places))
        floor = difference(again, alone)
        say(_line(ISOLATED, floor, rate))
        for layout in candidates[:-1]:
            times, rate = _trial(session, chosen, layout, next(places))
            off = difference(times, alone)
            say(_line(layout, off, rate))
            if off.p90 < max(P90_LIMIT, floor.p90):
                return replace(session, layout=layout)
    return replace(session, layout=ISOLATED)


def _line(layout: Layout, off: Difference, rate: float) -> str:
    return (
        f"calibrating: {layout.name}: p90 {100 * off.p90:.1f}%, median {100 * off.median:.1f}%, "
        f"bias {100 * off.bias:+.1f}%, n {off.n}, {rate:.1f}/s"
    )


def _trial(
    session: Session, tasks: Sequence[ListedTask], layout: Layout, out: Path
) -> tuple[dict[str, float], float]:
    config = CollectConfig(
        minutes=_MOST_SECS / 60, per_task=_PROGRAMS, per_request=_PROGRAMS, random_share=1.0
    )
    farm = replace(session.farm, verify="none")
    trial = replace(session, out=out, layout=layout, config=config, farm=farm)
    started = time.monotonic()
    tally = collect(trial, tasks)
    with Store.open(out) as store:
        times = latencies(store, session.platform.name)
    return times, tally.measured / (time.monotonic() - started)


def _spread(tasks: Sequence[ListedTask], n: int) -> list[ListedTask]:
    """Every so manieth task that runs long enough to be disturbed."""
    heavy = sorted((t for t in tasks if t.flops > 1e6), key=lambda t: (t.operator, t.flops))
    pool = heavy or list(tasks)
    step = max(1, len(pool) // n)
    return pool[::step][:n]
