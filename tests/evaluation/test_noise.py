"""Differences between repeated measurements, and the ceiling they set."""

from __future__ import annotations

from pathlib import Path

import pytest

from measurements_support import MeasurementMaker
from tensorese.evaluation.noise import (
    ENOUGH,
    WHOLE,
    compare_stores,
    difference,
    differences_by_host,
    oracle_ceiling,
)
from tensorese.records.nouns import Status
from tensorese.records.store import Store

pytestmark = pytest.mark.null


def test_differences_are_relative_to_the_second_and_of_common_programs() -> None:
    found = difference({"a": 1.1, "b": 2.0, "x": 9.0}, {"a": 1.0, "b": 2.0, "y": 1.0})
    assert found.n == 2
    assert found.median == pytest.approx(0.05)
    assert found.p90 == pytest.approx(0.09)
    assert difference({}, {}).n == 0


def test_the_oracle_is_perfect_without_noise_and_not_with_it() -> None:
    label = {str(i): 1.0 + i for i in range(10)}
    task_of = dict.fromkeys(label, "t")
    assert oracle_ceiling(label, label, task_of)["top1"] == 1.0
    swapped = {**label, "0": 2.0, "1": 1.0}
    found = oracle_ceiling(label, swapped, task_of, ks=(1, 2))
    assert found["top1"] == 0.5 and found["top2"] == 1.0


def test_small_groups_say_nothing() -> None:
    assert oracle_ceiling({"a": 1.0}, {"a": 1.0}, {"a": "t"})["tasks"] == 0


def test_whole_tasks_count_alone_where_there_are_enough() -> None:
    label, again, task_of = {}, {}, {}
    for task in range(ENOUGH + 5):
        size = WHOLE if task < ENOUGH else 8
        for i in range(size):
            key = f"{task} {i}"
            label[key], task_of[key] = 1.0 + i, str(task)
            again[key] = float(size - i) if task >= ENOUGH else 1.0 + i
    found = oracle_ceiling(label, again, task_of)
    assert found == {"tasks": ENOUGH, "programs": WHOLE, "top1": 1.0, "top5": 1.0}
    few = {key: task for key, task in task_of.items() if task != "0"}
    fewer = oracle_ceiling({key: label[key] for key in few}, again, few)
    assert fewer["tasks"] == ENOUGH + 4 and fewer["top1"] < 1.0


def test_two_stores_are_compared_on_valid_programs(
    tmp_path: Path, make_measurement: MeasurementMaker
) -> None:
    with (
        Store.open(tmp_path / "a", create=True) as a,
        Store.open(tmp_path / "b", create=True) as b,
    ):
        for i in range(1, 9):
            a.append(make_measurement(decisions=(i, 1, 1), secs=(i * 1e-3,)))
            b.append(make_measurement(decisions=(i, 1, 1), secs=(i * 2e-3,)))
        a.append(make_measurement(decisions=(9, 1, 1), status=Status.BUILD_ERROR))
        found = compare_stores(a, b, "cpu")
    assert found["n"] == 8
    assert found["median"] == 0.5 and found["bias"] == -0.5
    assert found["oracle"] == {"tasks": 1.0, "programs": 8.0, "top1": 1.0, "top5": 1.0}


def test_every_host_has_its_own_differences(
    tmp_path: Path, make_measurement: MeasurementMaker
) -> None:
    with (
        Store.open(tmp_path / "a", create=True) as a,
        Store.open(tmp_path / "b", create=True) as b,
    ):
        for i in range(1, 9):
            a.append(make_measurement(decisions=(i, 1, 1), secs=(2e-3,), host="x"))
            secs, host = (2e-3, "calm") if i % 2 else (1e-3, "busy")
            b.append(make_measurement(decisions=(i, 1, 1), secs=(secs,), host=host))
        b.append(make_measurement(decisions=(20, 1, 1), host="stranger"))
        found = differences_by_host(a, b, "cpu")
    assert {host: (off.n, off.p90, off.bias) for host, off in found.items()} == {
        "busy": (4, 1.0, 1.0),
        "calm": (4, 0.0, 0.0),
    }
