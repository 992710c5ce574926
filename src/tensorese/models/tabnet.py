"""TabNet as TenSet uses it: each store read in steps that look at few columns, stores summed.

A step weighs the columns (entmax: most weights are nothing), reads what is left through gated
layers, two of them shared by all steps, and says what the next step looks at; a column that was
looked at counts less later. As published: 64 wide to decide and to attend, 7 steps, relaxation
1.3, two shared and two own gated layers a step, entmax, ghost batches of 512 rows, momentum 0.02,
256 out; summed over the stores, two residual blocks, Linear. Ours: the coarse vector stands where
TenSet has operator slots; rows of padding take no part, in statistics neither; and no sparsity
loss, which TenSet's code computes and drops. Norms score by their running statistics.
Shape legend: see `store_parts`; R rows of all programs, X columns read, W deciding and attending.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensorese.features.lowered import COARSE, COLUMNS
from tensorese.models.base import register
from tensorese.models.store_network import StoreModel
from tensorese.models.store_parts import BatchNorm, Residuals

GLU_LAYERS = 2
"""Shared by the steps, and as many of each step's own."""


@dataclass(frozen=True, kw_only=True)
class TabNetConfig:
    width: int = 256
    """Of a store's vector, and of what follows the sum."""
    decide: int = 64
    """Numbers by which a step decides, and as many by which it attends."""
    steps: int = 7
    relaxation: float = 1.3
    """1: a column is looked at once; above, again."""
    ghost: int = 512
    """Rows that are normalised together in training."""
    momentum: float = 0.02
    blocks: int = 2


def entmax(x_RX: Tensor) -> Tensor:
    """Weights that sum to 1, of power 1.5 between softmax and sparsemax: small ones are nothing.

    The weights are max(x / 2 - threshold, 0) squared; only where they are above nothing does the
    threshold depend on x, and gradients follow that.
    """
    half = (x_RX - x_RX.amax(-1, keepdim=True)) / 2
    with torch.no_grad():
        ordered = half.sort(dim=-1, descending=True).values
        place = torch.arange(1, half.shape[-1] + 1, device=half.device, dtype=half.dtype)
        mean = ordered.cumsum(-1) / place
        spread = (ordered**2).cumsum(-1) - place * mean**2
        threshold = mean - ((1 - spread) / place).clamp(min=0).sqrt()
        count = (threshold <= ordered).sum(-1, keepdim=True)
        above = half >= ordered.gather(-1, count - 1)
    n = above.sum(-1, keepdim=True)
    mean = (half * above).sum(-1, keepdim=True) / n
    spread = ((half - mean) ** 2 * above).sum(-1, keepdim=True)
    threshold = mean - ((1 - spread) / n).clamp(min=1e-12).sqrt()
    return (half - threshold).clamp(min=0) ** 2


class GhostNorm(nn.Module):
    """BatchNorm, in training over parts of the batch."""

    def __init__(self, width: int, config: TabNetConfig) -> None:
        super().__init__()
        self.ghost = config.ghost
        self.norm = BatchNorm(width, momentum=config.momentum)

    def forward(self, x_RX: Tensor) -> Tensor:
        if not self.training:
            out: Tensor = self.norm(x_RX)
            return out
        parts = x_RX.chunk(max(1, math.ceil(len(x_RX) / self.ghost)))
        return torch.cat([self.norm(part) for part in parts])


class Gated(nn.Module):
    """A step's gated layers: the first ones' weights are shared, norms are its own."""

    def __init__(self, shared: nn.ModuleList, config: TabNetConfig) -> None:
        super().__init__()
        wide = 2 * config.decide
        own = [nn.Linear(wide, 2 * wide, bias=False) for _ in range(GLU_LAYERS)]
        self.layers = nn.ModuleList([*shared, *own])
        self.norms = nn.ModuleList(GhostNorm(2 * wide, config) for _ in self.layers)

    def forward(self, x_RX: Tensor) -> Tensor:
        for k, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            gated = F.glu(norm(layer(x_RX)), dim=-1)
            x_RX = gated if k == 0 else (x_RX + gated) * math.sqrt(0.5)
        return x_RX  # [R, 2 W]


class TabNetEncoder(nn.Module):
    """`[R, X]` to `[R, D]`."""

    def __init__(self, config: TabNetConfig) -> None:
        super().__init__()
        self.config = config
        columns, wide = COLUMNS + len(COARSE), 2 * config.decide
        sizes = [columns, *([wide] * (GLU_LAYERS - 1))]
        shared = nn.ModuleList(nn.Linear(size, 2 * wide, bias=False) for size in sizes)
        self.norm = BatchNorm(columns, momentum=config.momentum)
        self.first = Gated(shared, config)
        self.read = nn.ModuleList(Gated(shared, config) for _ in range(config.steps))
        self.look = nn.ModuleList(
            nn.Linear(config.decide, columns, bias=False) for _ in range(config.steps)
        )
        self.weigh = nn.ModuleList(GhostNorm(columns, config) for _ in range(config.steps))
        self.out = nn.Linear(config.decide, config.width, bias=False)

    def forward(self, x_RX: Tensor) -> Tensor:
        x_RX = self.norm(x_RX)
        left, decide = torch.ones_like(x_RX), self.config.decide
        attend_RW = self.first(x_RX)[:, decide:]
        decided = torch.zeros_like(attend_RW)
        for read, look, weigh in zip(self.read, self.look, self.weigh, strict=True):
            weights_RX = entmax(weigh(look(attend_RW)).float() * left)
            left = left * (self.config.relaxation - weights_RX)
            out_R2W = read(weights_RX * x_RX)
            decided = decided + F.relu(out_R2W[:, :decide])
            attend_RW = out_R2W[:, decide:]
        out: Tensor = self.out(decided)
        return out


class TabNetBody(nn.Module):
    def __init__(self, config: TabNetConfig, platforms: int) -> None:
        super().__init__()
        self.encoder = TabNetEncoder(config)
        self.residuals = Residuals(config.width, config.blocks)
        self.head = nn.Linear(config.width, platforms)

    def forward(self, rows_BSF: Tensor, mask_BS: Tensor, coarse_BC: Tensor) -> Tensor:
        owner_R, place_R = mask_BS.nonzero(as_tuple=True)
        rows_RX = torch.cat([rows_BSF[owner_R, place_R], coarse_BC[owner_R]], dim=-1)
        read_RD = self.encoder(rows_RX)
        sum_BD = read_RD.new_zeros(len(mask_BS), read_RD.shape[-1])
        sum_BD = sum_BD.index_add(0, owner_R, read_RD)
        scores_BP: Tensor = self.head(self.residuals(sum_BD))
        return scores_BP


@register
class TabNet(StoreModel):
    kind: ClassVar[str] = "tabnet"
    config_class = TabNetConfig
    body_class = TabNetBody
