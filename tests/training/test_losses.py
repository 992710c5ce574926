from __future__ import annotations

import math

import pytest
import torch

from tensorese.training import losses
from tensorese.training.losses import failure_loss, lambda_rank, squared_error

pytestmark = pytest.mark.null


def _by_hand(scores: list[float], labels: list[float]) -> float:
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
            discount = abs(1 / math.log2(1 + place[i]) - 1 / math.log2(1 + place[j]))
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
    for loss in (lambda_rank, squared_error):
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
