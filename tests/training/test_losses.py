from __future__ import annotations

import itertools
import math

import pytest
import torch

from tensorese.training import losses
from tensorese.training.losses import (
    centred_octaves,
    failure_loss,
    lambda_rank,
    squared_error,
    squared_octaves,
)

pytestmark = pytest.mark.null


def _by_hand(scores: list[float], labels: list[float], top: int = 99) -> float:
    """The formula of the paper, pair by pair, natural logarithm."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    place = {item: k + 1 for k, item in enumerate(order)}
    best = sorted(labels, reverse=True)
    ideal = sum((2**y - 1) / math.log2(1 + k) for k, y in enumerate(best, 1))
    total = 0.0
    for i, y_i in enumerate(labels):
        for j, y_j in enumerate(labels):
            if y_i <= y_j:
                continue
            worth = [1 / math.log2(1 + place[k]) if place[k] <= top else 0.0 for k in (i, j)]
            discount = abs(worth[0] - worth[1])
            gain = abs(2**y_i - 2**y_j) / ideal
            total += discount * gain * math.log(1 + math.exp(-(scores[i] - scores[j])))
    return total


def test_lambda_rank_by_hand() -> None:
    scores, labels = [0.3, -1.0, 2.0, 0.1], [0.5, 1.0, 0.2, 0.9]
    got = lambda_rank(torch.tensor([scores]), torch.tensor([labels]), torch.ones(1, 4).bool())
    assert float(got) == pytest.approx(_by_hand(scores, labels), rel=1e-5)


def test_invalid_programs_take_no_part() -> None:
    scores, labels = torch.tensor([[0.3, -1.0, 9.0]]), torch.tensor([[0.5, 1.0, 0.7]])
    valid = torch.tensor([[True, True, False]])
    for loss in (lambda_rank, squared_error, squared_octaves, centred_octaves):
        with_it = loss(scores, labels, valid)
        without = loss(scores[:, :2], labels[:, :2], valid[:, :2])
        torch.testing.assert_close(with_it, without)


def test_right_order_costs_less() -> None:
    labels, valid = torch.tensor([[1.0, 0.5, 0.1]]), torch.ones(1, 3).bool()
    good = lambda_rank(torch.tensor([[3.0, 0.0, -3.0]]), labels, valid)
    bad = lambda_rank(torch.tensor([[-3.0, 0.0, 3.0]]), labels, valid)
    assert float(good) < 0.05 * float(bad)


def test_empty_groups_cost_nothing() -> None:
    none = torch.zeros(2, 4).bool()
    x = torch.randn(2, 4)
    assert float(lambda_rank(x, x, none)) == 0.0
    assert float(squared_error(x, x, none)) == 0.0
    assert float(squared_octaves(x, x, none)) == 0.0
    assert float(centred_octaves(x, x, none)) == 0.0
    assert float(failure_loss(x, none, none)) == 0.0


def test_failures_are_a_class_of_their_own() -> None:
    known = torch.ones(1, 2).bool()
    failed = torch.tensor([[True, False]])
    right = failure_loss(torch.tensor([[5.0, -5.0]]), failed, known)
    wrong = failure_loss(torch.tensor([[-5.0, 5.0]]), failed, known)
    assert float(right) < 0.01 < 4 < float(wrong)


def test_expected_regret_is_low_when_the_best_leads() -> None:
    labels = torch.tensor([[1.0, 0.5, 0.02, 0.9]])
    valid = torch.tensor([[True, True, True, False]])
    good = losses.expected_regret(torch.tensor([[9.0, 0.0, -9.0, 99.0]]), labels, valid)
    bad = losses.expected_regret(torch.tensor([[-9.0, 0.0, 9.0, 99.0]]), labels, valid)
    assert float(good) < 0.01
    assert abs(float(bad) - 0.98) < 0.01  # the invalid program takes no part


def test_dimensions_in_front_are_losses_of_their_own() -> None:
    """Platforms and networks in one pass cost what they cost one by one."""
    torch.manual_seed(0)
    scores, labels = torch.randn(3, 2, 4, 8), torch.rand(3, 1, 4, 8)
    valid = torch.rand(3, 1, 4, 8) > 0.3
    valid[2] = False  # a platform without labels
    for loss in (
        lambda_rank,
        squared_error,
        squared_octaves,
        centred_octaves,
        losses.expected_regret,
        failure_loss,
    ):
        given = (valid & (labels > 0.5)) if loss is failure_loss else labels
        each = [loss(scores[p, m], given[p, 0], valid[p, 0]) for p in range(3) for m in range(2)]
        torch.testing.assert_close(loss(scores, given, valid), torch.stack(each).sum())


def test_the_best_of_five_picks_by_hand() -> None:
    scores, labels = torch.tensor([[0.2, -0.3, 0.5]]), torch.tensor([[0.4, 1.0, 0.7]])
    odds = torch.softmax(2.0 * scores[0], dim=0).tolist()
    draws = itertools.product(range(3), repeat=5)
    want = sum(
        math.prod(odds[k] for k in picks) * (1.0 - max(labels[0, k].item() for k in picks))
        for picks in draws
    )
    got = losses.expected_regret(scores, labels, torch.ones(1, 3).bool(), picks=5)
    assert float(got) == pytest.approx(want, rel=1e-4)


def test_places_below_the_top_are_worth_nothing() -> None:
    scores, labels = [0.3, -1.0, 2.0, 0.1], [0.5, 1.0, 0.2, 0.9]
    given = (torch.tensor([scores]), torch.tensor([labels]), torch.ones(1, 4).bool())
    for top in (1, 2, 3):
        got = lambda_rank(*given, top=top)
        assert float(got) == pytest.approx(_by_hand(scores, labels, top), rel=1e-5)


def test_octaves_by_hand() -> None:
    """A quarter of the best's speed said to be a half is off by one octave of six."""
    half = torch.tensor([[0.0, 0.0]])  # the sigmoid's half
    both = torch.ones(1, 2).bool()
    got = squared_octaves(half, torch.tensor([[0.25, 0.5]]), both)
    assert float(got) == pytest.approx((1 / 6) ** 2 / 2, rel=1e-5)
    # Slower than 2 ** -6 is as slow as that, whatever is said of it.
    lost = squared_octaves(torch.tensor([[-9.0, -4.2]]), torch.tensor([[1e-5, 1 / 64]]), both)
    assert float(lost) == pytest.approx(0.0, abs=1e-5)


def test_centred_octaves_by_hand() -> None:
    """Two octaves between programs that are said to be alike: each is off its mean by one."""
    alike, both = torch.tensor([[0.0, 0.0]]), torch.ones(1, 2).bool()
    got = centred_octaves(alike, torch.tensor([[0.125, 0.5]]), both)
    assert float(got) == pytest.approx((1 / 6) ** 2, rel=1e-5)


def test_centred_octaves_do_not_ask_how_far_the_best_is_ahead() -> None:
    scores, labels = torch.tensor([[1.0, 0.0, -2.0]]), torch.tensor([[0.9, 0.4, 0.3]])
    every = torch.ones(1, 3).bool()
    one, half = (centred_octaves(scores, labels * best, every) for best in (1.0, 0.5))
    torch.testing.assert_close(one, half)
    assert float(one) > 0
