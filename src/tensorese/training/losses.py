"""Ranking losses over groups of programs of one task. Shapes: G groups of N programs.

Labels are task minimum / latency, in (0, 1]; `valid` marks the programs that have one. Every
loss takes further dimensions in front (platforms, networks): each is a loss of its own, and
their sum comes back, from one pass instead of many small ones.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from tensorese.training.labels import OCTAVES

_FAR = 10.0  # octaves: slower than that is as slow


def lambda_rank(scores_GN: Tensor, labels_GN: Tensor, valid_GN: Tensor, top: int = 0) -> Tensor:
    """LambdaRank: pairs weighted by the DCG that swapping them would change; mean over groups.

    `top` counts places below it as worthless: only pairs that reach the first `top` matter.
    """
    labels = labels_GN.masked_fill(~valid_GN, 0.0)
    scores = scores_GN.masked_fill(~valid_GN, -1e4)  # far below: such a pair costs nothing
    rank = torch.argsort(torch.argsort(scores.detach(), dim=-1, descending=True), dim=-1)
    discount = 1.0 / torch.log2(2.0 + rank)
    if top:
        discount = discount * (rank < top)
    gain = torch.exp2(labels) - 1.0
    ideal = torch.sort(gain, dim=-1, descending=True).values
    places = torch.log2(2.0 + torch.arange(gain.shape[-1], device=gain.device))
    gain = gain / (ideal / places).sum(-1, keepdim=True).clamp(min=1e-9)
    weight = (discount[..., :, None] - discount[..., None, :]).abs()
    # A pair counts where the first is better: there the gain difference is positive.
    weight = weight * (gain[..., :, None] - gain[..., None, :]).clamp(min=0.0)
    cost = F.softplus(scores[..., None, :] - scores[..., :, None])
    return (cost * weight).sum() / max(scores.shape[-2], 1)


def squared_error(scores_GN: Tensor, labels_GN: Tensor, valid_GN: Tensor) -> Tensor:
    """Mean squared error of sigmoid(score) against the label."""
    error = (torch.sigmoid(scores_GN) - labels_GN.masked_fill(~valid_GN, 0.0)) ** 2
    return _mean_over(error, valid_GN)


def squared_octaves(scores_GN: Tensor, labels_GN: Tensor, valid_GN: Tensor) -> Tensor:
    """The same on a logarithmic scale, where 2 ** -`OCTAVES` of the best's speed is nothing.

    Speeds separate the best, octaves the bad from the worse.
    """
    predicted = (1.0 - F.softplus(-scores_GN) / (OCTAVES * math.log(2.0))).clamp(min=0.0)
    share = labels_GN.masked_fill(~valid_GN, 1.0).clamp(min=2.0**-OCTAVES)
    error = (predicted - (1.0 + torch.log2(share) / OCTAVES)) ** 2
    return _mean_over(error, valid_GN)


def centred_octaves(scores_GN: Tensor, labels_GN: Tensor, valid_GN: Tensor) -> Tensor:
    """The error of the logarithm less its group's mean: how programs of one task compare.

    A task's best is one measurement, and how far it is ahead of the rest says nothing about them.
    """
    predicted = -F.softplus(-scores_GN) / (OCTAVES * math.log(2.0))
    share = labels_GN.masked_fill(~valid_GN, 1.0).clamp(min=2.0**-_FAR)
    error = (predicted - torch.log2(share) / OCTAVES) * valid_GN
    mean = error.sum(-1, keepdim=True) / valid_GN.sum(-1, keepdim=True).clamp(min=1)
    return _mean_over((error - mean) ** 2, valid_GN)


def expected_regret(
    scores_GN: Tensor,
    labels_GN: Tensor,
    valid_GN: Tensor,
    picks: int = 1,
    sharpness: float = 2.0,
) -> Tensor:
    """What the best of `picks` programs, drawn by softmax of the scores, loses on average.

    The ranking loss looks at a whole list; this looks at its very top, where one disaster that
    is scored high costs everything.
    """
    odds = torch.softmax((sharpness * scores_GN).masked_fill(~valid_GN, -1e4), dim=-1)
    labels = labels_GN.masked_fill(~valid_GN, 0.0)
    best = labels.amax(-1, keepdim=True).clamp(min=1e-6)
    lost = (1.0 - labels / best) * valid_GN
    if picks > 1:
        lost, order = lost.masked_fill(~valid_GN, 1.0).sort(dim=-1)
        # Chance that no pick is among the best j: the j-th decides where it falls.
        ahead = odds.gather(-1, order.expand_as(odds)).cumsum(-1)
        missed = (1.0 - ahead).clamp(min=0.0) ** picks
        odds = F.pad(missed[..., :-1], (1, 0), value=1.0) - missed
        lost = lost * valid_GN.any(-1, keepdim=True)
    return (odds * lost).sum() / max(scores_GN.shape[-2], 1)


def failure_loss(logits_GN: Tensor, failed_GN: Tensor, known_GN: Tensor) -> Tensor:
    """Cross entropy of the class "fails", over programs that were tried at all."""
    wanted = failed_GN.to(logits_GN.dtype).expand_as(logits_GN)
    loss = F.binary_cross_entropy_with_logits(logits_GN, wanted, reduction="none")
    return _mean_over(loss, known_GN)


def _mean_over(loss: Tensor, counted: Tensor) -> Tensor:
    """The mean where `counted`, summed over the dimensions in front."""
    each = (loss * counted).sum((-2, -1)) / counted.sum((-2, -1)).clamp(min=1)
    return each.sum()
