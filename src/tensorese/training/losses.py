"""Ranking losses over groups of programs of one task. Shapes: G groups of N programs.

Labels are task minimum / latency, in (0, 1]; `valid` marks the programs that have one.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def lambda_rank(scores_GN: Tensor, labels_GN: Tensor, valid_GN: Tensor) -> Tensor:
    """LambdaRank: pairs weighted by the DCG that swapping them would change; mean over groups."""
    labels = labels_GN.masked_fill(~valid_GN, 0.0)
    scores = scores_GN.masked_fill(~valid_GN, -1e4)
    rank = torch.argsort(torch.argsort(scores.detach(), dim=1, descending=True), dim=1)
    discount = 1.0 / torch.log2(2.0 + rank)
    gain = torch.exp2(labels) - 1.0
    ideal = torch.sort(gain, dim=1, descending=True).values
    places = torch.log2(2.0 + torch.arange(gain.shape[1], device=gain.device))
    gain = gain / (ideal / places).sum(1, keepdim=True).clamp(min=1e-9)
    weight = (discount[:, :, None] - discount[:, None, :]).abs()
    weight = weight * (gain[:, :, None] - gain[:, None, :]).clamp(min=0.0)
    # A pair counts where the first is better: there the gain difference is positive.
    both = valid_GN[:, :, None] & valid_GN[:, None, :]
    cost = F.softplus(scores[:, None, :] - scores[:, :, None])
    return (cost * weight * both).sum() / max(len(scores), 1)


def squared_error(scores_GN: Tensor, labels_GN: Tensor, valid_GN: Tensor) -> Tensor:
    """Mean squared error of sigmoid(score) against the label."""
    error = (torch.sigmoid(scores_GN) - labels_GN.masked_fill(~valid_GN, 0.0)) ** 2
    return (error * valid_GN).sum() / valid_GN.sum().clamp(min=1)


def expected_regret(
    scores_GN: Tensor, labels_GN: Tensor, valid_GN: Tensor, sharpness: float = 2.0
) -> Tensor:
    """What picking one program at random, by softmax of the scores, loses on average.

    The ranking loss looks at a whole list; this looks at its very top, where one disaster that
    is scored high costs everything.
    """
    odds = torch.softmax((sharpness * scores_GN).masked_fill(~valid_GN, -1e4), dim=1)
    best = labels_GN.masked_fill(~valid_GN, 0.0).amax(1, keepdim=True).clamp(min=1e-6)
    return (odds * (1.0 - labels_GN / best) * valid_GN).sum() / max(len(scores_GN), 1)


def failure_loss(logits_GN: Tensor, failed_GN: Tensor, known_GN: Tensor) -> Tensor:
    """Cross entropy of the class "fails", over programs that were tried at all."""
    loss = F.binary_cross_entropy_with_logits(logits_GN, failed_GN.float(), reduction="none")
    return (loss * known_GN).sum() / known_GN.sum().clamp(min=1)
