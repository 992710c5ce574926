"""The scheduler on made-up curves: who gets trials, who gets few, who is dropped."""

from __future__ import annotations

from collections import Counter

import pytest

from measurements_support import matmul_measurement
from tensorese.records.nouns import Measurement, Status
from tensorese.search.loop.scheduler import Progress, Scheduler

pytestmark = pytest.mark.null


def task(name: str, *, weight: int = 1, flops: float = 1e8, operator: str = "conv2d") -> Progress:
    return Progress(name=name, operator=operator, weight=weight, flops=flops, bytes=1e4)


def trial(latency: float | None, build_secs: float = 0.2) -> Measurement:
    if latency is None:
        return matmul_measurement(status=Status.BUILD_ERROR, build_secs=build_secs)
    return matmul_measurement(secs=(latency,), build_secs=build_secs)


def play(scheduler: Scheduler, batches: int, floors: dict[str, float]) -> Counter[str]:
    """Every task's best falls towards its floor as 1 / trials; counts the trials given."""
    for _ in range(batches):
        index = scheduler.pick()
        if index is None:
            break
        one = scheduler.tasks[index]
        start = one.trials + 1
        latencies = [floors[one.name] * (1 + 1 / (start + i)) for i in range(scheduler.size(index))]
        scheduler.learn(index, [trial(latency) for latency in latencies])
    return Counter({one.name: one.trials for one in scheduler.tasks})


def test_every_task_is_visited_once_before_any_twice_costliest_first() -> None:
    scheduler = Scheduler([task("small", flops=1e6), task("big"), task("twice", weight=2)])
    order = []
    for _ in range(3):
        index = scheduler.pick()
        assert index is not None
        order.append(scheduler.tasks[index].name)
        scheduler.learn(index, [trial(1e-3)])
    assert order == ["twice", "big", "small"]


def test_heavy_tasks_get_more_trials_and_negligible_ones_few() -> None:
    scheduler = Scheduler([task("heavy", weight=8), task("light"), task("dust", flops=1e3)])
    trials = play(scheduler, 40, {"heavy": 1e-2, "light": 1e-2, "dust": 1e-7})
    assert trials["heavy"] > 1.5 * trials["light"]
    assert trials["dust"] <= 8


def test_a_task_that_improves_is_preferred_to_an_equal_one_that_does_not() -> None:
    scheduler = Scheduler([task("stuck"), task("moving")])
    for name, latencies in {"stuck": [1e-2] * 32, "moving": [2e-2] * 16 + [1e-2] * 16}.items():
        index = [t.name for t in scheduler.tasks].index(name)
        for start in (0, 16):
            scheduler.learn(index, [trial(s) for s in latencies[start : start + 16]])
    assert scheduler.pick() == 1


def test_a_task_far_behind_its_like_is_preferred() -> None:
    scheduler = Scheduler([task("fine"), task("slow"), task("other", operator="softmax")])
    for index, latency in enumerate((1e-2, 2e-2, 2e-2)):
        scheduler.learn(index, [trial(latency)] * 16)
    assert scheduler.pick() == 1


def test_by_time_cheap_trials_come_before_dear_ones() -> None:
    scheduler = Scheduler([task("dear"), task("cheap")], by_time=True)
    scheduler.learn(0, [trial(1e-2, build_secs=5.0)] * 16)
    scheduler.learn(1, [trial(1e-2, build_secs=0.1)] * 16)
    assert scheduler.gain(1) > 3 * scheduler.gain(0)


def test_a_dead_end_is_dropped_and_said() -> None:
    scheduler = Scheduler([task("dead"), task("alive")])
    scheduler.learn(0, [trial(None)] * 31)
    assert not scheduler.tasks[0].over
    scheduler.learn(0, [trial(None)])
    assert "none of 32 candidates ran" in scheduler.tasks[0].over
    scheduler.learn(1, [trial(1e-3)])
    assert scheduler.pick() == 1


def test_early_stopping_ends_a_task_that_improves_within_the_noise_only() -> None:
    scheduler = Scheduler([task("flat")], early_stopping=20)
    scheduler.learn(0, [trial(1e-3)] * 16)
    assert not scheduler.tasks[0].over
    scheduler.learn(0, [trial(0.995e-3)] * 16)
    assert "no improvement" in scheduler.tasks[0].over
    assert scheduler.pick() is None


def test_a_busy_task_is_never_picked() -> None:
    scheduler = Scheduler([task("one"), task("two")])
    assert scheduler.pick({0}) == 1
    assert scheduler.pick({0, 1}) is None
