from __future__ import annotations

import itertools

import numpy as np
import pytest

from tensorese.evaluation.metrics import (
    bootstrap,
    judge,
    mean_top_k,
    pairwise_accuracy,
    random_best,
    random_top_k,
    summary,
)

pytestmark = pytest.mark.null

LATENCY = np.array([4.0, 1.0, 2.0, 8.0])


def test_perfect_and_reversed_order() -> None:
    good, bad = judge("t", -LATENCY, LATENCY), judge("t", LATENCY, LATENCY)
    assert good.ratio(1) == 1.0 and good.regret == 0.0 and good.pairwise == 1.0
    assert bad.ratio(1) == 1 / 8 and bad.regret == 7.0 and bad.pairwise == 0.0
    assert bad.ratio(5) == 1.0  # more choices than programs


def test_random_order_by_enumeration() -> None:
    for k in (1, 2, 3, 4):
        draws = [min(pick) for pick in itertools.combinations(LATENCY, k)]
        assert random_top_k(LATENCY, k) == pytest.approx(np.mean([1.0 / d for d in draws]))
        assert random_best(LATENCY, k) == pytest.approx(np.mean(draws))


def test_a_constant_model_scores_like_random_order() -> None:
    rng = np.random.default_rng(1)
    ratios, expected = [], []
    for _ in range(400):
        latency = np.sort(rng.uniform(1, 10, 50))  # sorted: file order would look perfect
        result = judge("t", np.zeros(50), latency)
        ratios.append(result.ratio(1))
        expected.append(result.random[1])
    assert np.mean(ratios) < 0.75
    assert judge("t", np.zeros(50), latency).pairwise == 0.5


def test_the_mean_counts_every_task_alike() -> None:
    one = judge("slow", [1.0, 0.0], [20.0, 10.0])
    two = judge("fast", [1.0, 0.0], [1.0, 2.0])
    assert mean_top_k([one, two], 1) == pytest.approx(0.75)


def test_pairwise_ignores_equal_latencies() -> None:
    assert pairwise_accuracy(np.array([1.0, 2.0]), np.array([3.0, 3.0])) == 0.5
    assert pairwise_accuracy(np.array([1.0, 2.0, 0.0]), np.array([3.0, 3.0, 9.0])) == 1.0


def test_bootstrap_covers_the_mean_and_narrows() -> None:
    rng = np.random.default_rng(0)
    few, many = bootstrap(rng.normal(1, 1, 20)), bootstrap(rng.normal(1, 1, 500))
    assert few.low < few.mean < few.high
    assert many.high - many.low < 0.5 * (few.high - few.low)


def test_summary_has_the_promised_keys() -> None:
    figures = summary([judge("t", -LATENCY, LATENCY)])
    wanted = {"top1", "top5", "top10", "pairwise", "regret", "tasks"}
    assert wanted | {"random_top1", "random_top5"} <= set(figures)


def test_scores_and_latencies_pair_up() -> None:
    with pytest.raises(ValueError, match="pair up"):
        judge("t", [1.0], [1.0, 2.0])
