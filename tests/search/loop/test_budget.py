"""What a run keeps back of its time."""

from __future__ import annotations

import time

import pytest

from tensorese.search.loop.budget import Budget, expected_trials
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
    assert budget(3, ago=156, compiles=0).time_for_a_turn(tasks)


def test_a_clock_that_is_set_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    running = budget(3, ago=100)
    for jump in (-1e6, 1e6):
        now = time.time() + jump
        monkeypatch.setattr(time, "time", lambda now=now: now)
        assert running.elapsed() == pytest.approx(100, abs=5.0)


def test_a_library_whose_kernels_compile_side_by_side_needs_less_of_the_end() -> None:
    tasks = [progress(60.0) for _ in range(5)]
    alone = budget(10).compiling(tasks)
    crew = Budget(
        config=TuneConfig(minutes=10),
        started=time.monotonic(),
        earlier=0.0,
        builders=15,
        side_by_side=True,
    )
    assert alone - crew.compiling(tasks) == pytest.approx(60.0 - 2.0)


def test_the_last_play_off_is_kept_time_for_where_a_tenth_of_the_run_suffices() -> None:
    tasks = [progress(20.0) for _ in range(5)]  # ten seconds a build of all
    assert budget(10, plays_off=True).compiling(tasks) == budget(10).compiling(tasks) + 40
    assert budget(6, plays_off=True).compiling(tasks) == budget(6).compiling(tasks)
    assert budget(60, plays_off=True, compiles=0).compiling(tasks) == 0


def test_timing_finalists_again_takes_a_tenth_of_the_time_at_most() -> None:
    tasks = [progress(20.0) for _ in range(30)]  # two seconds a program
    short = budget(1)
    assert short.finalists(tasks) == int(6 / (2 / 2 + 0.3))
    assert short.ending(tasks) <= 30 and budget(60).finalists(tasks) > 90
    unlimited = Budget(config=TuneConfig(trials=100), started=0.0, earlier=0.0)
    assert unlimited.finalists(tasks) > 1e6


def test_every_task_gets_three_trials_where_they_suffice() -> None:
    assert budget(1).first_batch(60) == 3
    assert budget(10).first_batch(20) == 30
    by_trials = [Budget(config=TuneConfig(trials=n), started=0.0, earlier=0.0) for n in (8, 40, 10)]
    assert [one.first_batch(10) for one in by_trials] == [1, 3, 1]


def test_how_many_trials_a_run_is_expected_to_have() -> None:
    assert expected_trials(TuneConfig(trials=100)) == 100
    assert expected_trials(TuneConfig(minutes=2)) == 240
    assert expected_trials(TuneConfig(trials=100, minutes=0.5)) == 60
    assert expected_trials(TuneConfig()) == 1200
