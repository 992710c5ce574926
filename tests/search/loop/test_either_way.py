"""A convolution's way is decided once both were measured; what is not taken weighs nothing."""

from __future__ import annotations

import math

import pytest

from measurements_support import matmul_measurement
from tensorese.records.nouns import Status
from tensorese.records.run_entries import EitherWay, Way
from tensorese.records.task import Task
from tensorese.search.loop.either_way import settled
from tensorese.search.loop.task import TuningTask

pytestmark = pytest.mark.null

KEY = (1, 56, 56, 64, 64)


def task(size: int, weight: int) -> TuningTask:
    measurement = matmul_measurement(size=size)
    made = Task(
        name=f"matmul{size}",
        operator="dense",
        workload=measurement.program.workload,
        target="{}",
        weight=weight,
        flops=1e6,
        module=None,
    )
    return TuningTask(made, measurement.platform)


def visit(one: TuningTask, size: int, secs: float | None) -> None:
    status = Status.BUILD_ERROR if secs is None else Status.OK
    results = [matmul_measurement(size=size, status=status, secs=(secs or 0.0,))]
    one.add(results)
    one.progress.add(results)


def either(first: Way, second: Way) -> list[EitherWay]:
    return [EitherWay(key=KEY, ways=(first, second))]


@pytest.mark.parametrize(
    ("direct", "better"),
    [(1.5e-3, True), (1.96e-3, False), (2.5e-3, False), (None, False)],
    ids=["faster", "within noise", "slower", "nothing ran"],
)
def test_the_cheaper_sum_of_tasks_and_transforms_wins(direct: float | None, better: bool) -> None:
    product, alone = task(8, 3), task(16, 0)  # another convolution has the product too
    ways = either(
        Way(m=4, calls={product.id: 2}, fixed=2e-3), Way(m=0, calls={alone.id: 2}, fixed=0.0)
    )
    visit(product, 8, 1e-3)
    assert settled(ways, [product, alone]) == ways, "one of them was not measured yet"
    assert (alone.progress.over, alone.task.weight) == ("", 0)
    visit(alone, 16, direct)
    (now,) = settled(ways, [product, alone])
    assert now.decided and [way.m for way in now.ways] == ([0, 4] if better else [4, 0])
    secs = {way.m: way.secs for way in now.ways}
    assert secs[4] == pytest.approx(4e-3)
    assert secs[0] is None if direct is None else secs[0] == pytest.approx(2 * direct)
    assert (product.task.weight, alone.task.weight) == ((1, 2) if better else (3, 0))
    assert (product.progress.weight, alone.progress.weight) == ((1, 2) if better else (3, 0))
    assert bool(alone.progress.over) is not better and not product.progress.over
    assert settled([now], [product, alone]) == [now], "and it stays decided"


def test_a_way_that_does_not_run_loses_and_its_task_is_over() -> None:
    product, alone = task(8, 2), task(16, 0)
    ways = either(Way(m=2, calls={product.id: 2}), Way(m=0, calls={alone.id: 2}))
    visit(product, 8, None)
    visit(alone, 16, 1.0)
    (now,) = settled(ways, [product, alone])
    assert (now.ways[0].m, now.ways[1].secs) == (0, None)
    assert product.progress.over and product.progress.best == math.inf
    assert (product.task.weight, alone.task.weight) == (0, 2)


def test_tasks_that_are_left_out_this_time_decide_nothing() -> None:
    product, alone = task(8, 2), task(16, 0)
    ways = either(Way(m=2, calls={product.id: 2}), Way(m=0, calls={alone.id: 2}))
    visit(product, 8, 1.0)
    assert settled(ways, [product]) == ways
    assert settled([], [product]) == [] and not product.progress.over


def test_a_product_that_another_convolution_may_need_goes_on() -> None:
    """Two convolutions with the same product: one is decided against it, the other is not yet."""
    product, a, b = task(8, 0), task(16, 2), task(24, 1)
    ways = [
        EitherWay(key=KEY, ways=(Way(m=0, calls={a.id: 2}), Way(m=4, calls={product.id: 2}))),
        EitherWay(
            key=(1, 55, 55, 64, 64),
            ways=(Way(m=0, calls={b.id: 1}), Way(m=4, calls={product.id: 1})),
        ),
    ]
    visit(a, 16, 1.0)
    visit(product, 8, 2.0)
    now = settled(ways, [product, a, b])
    assert [one.decided for one in now] == [True, False] and not product.progress.over
    visit(b, 24, 3.0)
    now = settled(now, [product, a, b])
    assert [one.ways[0].m for one in now] == [0, 4] and not product.progress.over
    assert [one.task.weight for one in (product, a, b)] == [1, 2, 0]
    assert b.progress.over


def test_it_is_the_same_from_a_file() -> None:
    (one,) = either(
        Way(m=4, calls={"aa": 2}, fixed=1e-3, secs=2e-3), Way(m=0, calls={"bb": 2}, secs=None)
    )
    assert EitherWay.from_dict(one.to_dict()) == one
