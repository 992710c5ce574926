"""The paper's top-k, on numbers computed by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from measurements_support import MeasurementMaker
from tensorese.evaluation.metrics import judge
from tensorese.evaluation.networks import network_use, pool, pooled_ratio
from tensorese.features.programs import DataError
from tensorese.records.networks import NetworkUse
from tensorese.records.store import Store

pytestmark = pytest.mark.null

# First choices of 20, 1 and 6 where 10, 1 and 3 are the best.
SLOW = judge("slow", [1.0, 0.0], [20.0, 10.0])
FAST = judge("fast", [1.0, 0.0], [1.0, 2.0])
OTHER = judge("other", [1.0, 0.0, -1.0], [6.0, 3.0, 9.0])
USE = NetworkUse(weights={"a": {"slow": 1, "fast": 10}, "b": {"slow": 2, "nobody": 7}})


def test_sums_are_weighted_by_use_and_pooled_over_networks() -> None:
    pooled = pool([SLOW, FAST], USE)
    assert pooled.weighted and pooled.unlisted == 0
    # (1 * 10 + 10 * 1 + 2 * 10) / (1 * 20 + 10 * 1 + 2 * 20)
    assert pooled.top[1] == pytest.approx(40 / 70)
    assert pooled.top[5] == 1.0
    a, b = pooled.networks
    assert (a.network, a.tasks, b.network, b.tasks) == ("a", 2, "b", 1)
    assert a.top[1] == pytest.approx(20 / 30) and b.top[1] == pytest.approx(20 / 40)


def test_the_same_from_ratios() -> None:
    best = {"slow": 10.0, "fast": 1.0}
    ratio = {"slow": 0.5, "fast": 1.0}
    assert pooled_ratio(best, ratio, USE) == pytest.approx(40 / 70)
    assert pooled_ratio(best, ratio, NetworkUse()) == pytest.approx(11 / 21)


def test_a_random_order_is_of_expected_latencies() -> None:
    assert pool([SLOW, FAST], USE).random[1] == pytest.approx(40 / (15 + 10 * 1.5 + 2 * 15))


def test_the_costs_are_shares_of_what_is_lost() -> None:
    first, second = pool([SLOW, FAST], USE).costs  # FAST loses nothing
    assert (first.network, first.task, first.weight) == ("b", "slow", 2)
    assert (first.share, second.share) == pytest.approx((2 / 3, 1 / 3))
    assert first.top1 == 0.5 and second.network == "a"


def test_a_task_that_no_network_uses_counts_nothing() -> None:
    pooled = pool([SLOW, FAST, OTHER], USE)
    assert pooled.unlisted == 1
    assert pooled.top == pool([SLOW, FAST], USE).top


def test_without_a_list_every_task_counts_once() -> None:
    pooled = pool([SLOW, FAST, OTHER], NetworkUse())
    assert not pooled.weighted and pooled.networks == ()
    assert pooled.top[1] == pytest.approx(14 / 27)
    assert [(cost.network, cost.task) for cost in pooled.costs] == [("", "slow"), ("", "other")]


def test_a_perfect_ranking_costs_nothing() -> None:
    pooled = pool([FAST], NetworkUse())
    assert pooled.top[1] == 1.0 and pooled.costs == ()


def test_the_list_beside_a_store_is_its_own(
    tmp_path: Path, make_measurement: MeasurementMaker
) -> None:
    measurement = make_measurement()
    task = measurement.program.workload.id
    with Store.open(tmp_path / "store", create=True) as store:
        store.append(measurement)
        assert network_use(store, [task]).weights == {}
        file = tmp_path / "networks.json"
        file.write_text(json.dumps({"net": {task: 3, "elsewhere": 4}, "another": ["elsewhere"]}))
        assert network_use(store, [task], file).weights == {"net": {task: 3.0}}
        with pytest.raises(DataError, match="names none of the 1"):
            network_use(store, ["w"], file)
