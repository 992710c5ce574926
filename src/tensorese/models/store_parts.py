"""What networks on a lowered program's stores are built of.

Shape legend: B programs, S stores (of the longest program; the mask says which are there),
F columns of a store, C coarse columns, D width, Q queries, K keys.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensorese.features.lowered import COARSE, COLUMNS

_HIDDEN = -3e4
"""Added to a key's weight that must not count: not infinite, a program may have no stores."""


class StatementEncoder(nn.Module):
    """Each store by itself: its row beside its program's coarse vector, twice Linear and ReLU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(COLUMNS + len(COARSE), width)
        self.second = nn.Linear(width, width)

    def forward(self, rows_BSF: Tensor, coarse_BC: Tensor) -> Tensor:
        coarse = coarse_BC[:, None].expand(-1, rows_BSF.shape[1], -1)
        hidden = F.relu(self.first(torch.cat([rows_BSF, coarse], dim=-1)))
        return F.relu(self.second(hidden))  # [B, S, D]


class Residuals(nn.Module):
    """x + ReLU(Linear x), some times."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))

    def forward(self, x_BD: Tensor) -> Tensor:
        for layer in self.layers:
            x_BD = x_BD + F.relu(layer(x_BD))
        return x_BD


class Attention(nn.Module):
    """Scaled dot products of several heads, without norm, residual and positions."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.merge = nn.Linear(width, width)

    def forward(self, x_BQD: Tensor, y_BKD: Tensor, bias_BK: Tensor) -> Tensor:
        """What x finds in y; the bias is added to the weight of a key, before the softmax."""
        query, key, value = (
            layer(x).view(*x.shape[:2], self.heads, -1).transpose(1, 2)
            for layer, x in ((self.query, x_BQD), (self.key, y_BKD), (self.value, y_BKD))
        )
        bias = bias_BK[:, None, None, :].to(query.dtype)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        merged: Tensor = self.merge(mixed.transpose(1, 2).flatten(2))
        return merged


class BatchNorm(nn.BatchNorm1d):
    """A row that is alone in training is normalised by what is known of others."""

    def forward(self, x_RX: Tensor) -> Tensor:
        if not self.training or len(x_RX) > 1:
            return super().forward(x_RX)
        return F.batch_norm(
            x_RX, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
        )


def bias_of(mask_BS: Tensor) -> Tensor:
    """For attention: nothing where a store is, as good as minus infinity elsewhere."""
    return torch.zeros(mask_BS.shape, device=mask_BS.device).masked_fill(~mask_BS, _HIDDEN)


def summed(x_BSD: Tensor, mask_BS: Tensor) -> Tensor:
    """`[B, D]`: over the stores that are there."""
    return (x_BSD * mask_BS[..., None].to(x_BSD.dtype)).sum(1)


def check_heads(width: int, heads: int) -> None:
    if heads < 1 or width % heads:
        raise ValueError(f"width must be a multiple of heads, got {width}, {heads}")
