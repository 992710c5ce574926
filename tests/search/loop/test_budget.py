"""What a run keeps back of its time."""

from __future__ import annotations

import time

import pytest

from tensorese.search.loop.budget import Budget
from tensorese.search.loop.config import TuneConfig
from tensorese.search.loop.scheduler import Progress

pytestmark = pytest.mark.null


def progress(secs: float) -> Progress:
    made = Progress(name="a", operator="dense", weight=1, flops=1.0, bytes=1)
    made.secs, made.trials = secs, 10
    return made


def budget(minutes: float, ago: float = 0.0, **more: float) -> Budget:
    started = time.monotonic() - ago
    return Budget(config=TuneConfig(minutes=minutes), started=started, earlier=0.0, **more)


def test_a_network_that_took_long_to_read_gets_more_for_its_end() -> None:
    tasks = [progress(20.0)]
    quick, slow = budget(10), budget(10, preparing=20.0)
    assert slow.ending(tasks) == pytest.approx(quick.ending(tasks) + 30.0)
    left = slow.secs_left(tasks)
    assert left is not None and left == pytest.approx(600 - slow.ending(tasks), abs=1.0)


def test_the_end_never_takes_more_than_half_of_what_reading_left() -> None:
    assert budget(1, preparing=20.0).ending([progress(50.0)]) == pytest.approx(20.0)
    assert budget(1, preparing=100.0).ending([progress(50.0)]) == 0.0


def test_finalists_get_another_turn_while_compiling_still_fits() -> None:
    tasks = [progress(10.0)]  # 25 s to compile and two builds of a second each
    assert budget(3, ago=150).time_for_a_turn(tasks)
    assert not budget(3, ago=156).time_for_a_turn(tasks)
    assert budget(3, ago=156, compiles=False).time_for_a_turn(tasks)


def test_a_clock_that_is_set_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    running = budget(3, ago=100)
    for jump in (-1e6, 1e6):
        now = time.time() + jump
        monkeypatch.setattr(time, "time", lambda now=now: now)
        assert running.elapsed() == pytest.approx(100, abs=5.0)
