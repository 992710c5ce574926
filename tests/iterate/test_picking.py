from __future__ import annotations

import math

import pytest

from tensorese.iterate.picking import TaskHistory, gain_of, pick_tasks, shares, weighted_sum

pytestmark = pytest.mark.null


def task(name: str, *bests: float, visits: int = -1, weight: float = 1.0) -> TaskHistory:
    return TaskHistory(
        workload=name,
        weight=weight,
        flops=1.0,
        visits=len(bests) if visits < 0 else visits,
        bests=bests,
    )


def test_tasks_never_visited_come_first_the_heaviest_before_the_others() -> None:
    tasks = [task("known", 9.0), task("light", weight=1.0), task("heavy", weight=5.0)]
    assert pick_tasks(tasks, 2) == ["heavy", "light"]
    assert pick_tasks(tasks, 3) == ["heavy", "light", "known"]


def test_a_task_visited_rarely_counts_in_full() -> None:
    tried = task("tried", 9.0, 8.0, 7.9, 7.9, 7.9)
    assert tried.gain(3) == pytest.approx(0.1)
    assert pick_tasks([tried, task("new", 0.2)], 1) == ["new"]


def test_the_window_grows_until_enough_tasks_gained() -> None:
    still = task("still", 4.0, 2.0, 2.0, 2.0, 2.0, 2.0)
    gains = task("gains", 3.0, 3.0, 3.0, 2.9, 2.8, 2.7)
    assert still.gain(3) == still.gain(4) == 0.0 and still.gain(5) == pytest.approx(2.0)
    assert pick_tasks([still, gains], 1) == ["gains"]
    assert pick_tasks([still, gains], 2) == ["still", "gains"], "window 5: both gained"


def test_weights_count() -> None:
    slow, often = task("slow", 5.0), task("often", 1.0, weight=6.0)
    assert pick_tasks([slow, often], 1) == ["often"]


def test_one_that_is_under_way_or_never_ran_waits() -> None:
    never = task("never", *[math.inf] * 5)
    assert task("flying", visits=1).gain(3) == 0.0 and never.gain(3) == 0.0
    assert task("at last", *[math.inf] * 4, 1.0).gain(3) == math.inf
    assert pick_tasks([task("flying", visits=1), never, task("known", 0.1)], 1) == ["known"]


def test_the_budget_is_never_exceeded() -> None:
    assert shares(["a", "b", "c"], 16, None) == [("a", 16), ("b", 16), ("c", 16)]
    assert shares(["a", "b", "c"], 16, 20) == [("a", 16), ("b", 4)]
    assert shares(["a"], 16, 0) == []


def test_the_gain_of_a_round_is_of_the_weighted_sum() -> None:
    weights = {"a": 2.0, "b": 1.0}
    assert weighted_sum({"a": 1.0, "b": 2.0}, weights) == 4.0
    assert gain_of({"a": 1.0, "b": 2.0}, {"a": 0.5, "b": 2.0}, weights) == pytest.approx(0.25)
    assert gain_of({"a": 1.0}, {"a": 0.5, "b": 2.0}, weights) is None, "b came new"
    assert gain_of({}, {}, weights) is None
