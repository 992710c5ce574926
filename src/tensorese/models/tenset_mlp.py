"""TenSet's segment-sum MLP: every store encoded alone, summed by program, then residual blocks.

Sizes are those of its authors' code (`cost_model/mlp_model.py`); dropout is not in it.
Shape legend: see `store_network`; W width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from tensorese.features.lowered import COARSE, COLUMNS
from tensorese.models.base import register
from tensorese.models.store_network import StoreModel


@dataclass(frozen=True, kw_only=True)
class TenSetMLPConfig:
    width: int = 256
    blocks: int = 2
    """Residual blocks after the sum."""
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.width < 1 or self.blocks < 0:
            raise ValueError(f"width and blocks are counts, got {self.width} and {self.blocks}")


class TenSetMLPBody(nn.Module):
    def __init__(self, config: TenSetMLPConfig, platforms: int) -> None:
        super().__init__()
        width = config.width
        self.encoder = nn.Sequential(
            *(nn.Linear(COLUMNS + len(COARSE), width), nn.ReLU()),
            *(nn.Linear(width, width), nn.ReLU()),
        )
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(config.blocks))
        self.drop = nn.Dropout(config.dropout)
        self.head = nn.Linear(width, platforms)

    def forward(self, rows_BSF: Tensor, mask_BS: Tensor, coarse_BC: Tensor) -> Tensor:
        # The operator stands beside every store, as in the original's further 10 columns.
        beside_BSC = coarse_BC[:, None].expand(-1, rows_BSF.shape[1], -1)
        x_BSW = self.encoder(torch.cat([rows_BSF, beside_BSC], dim=-1))
        x_BW = (x_BSW * mask_BS[..., None].to(x_BSW.dtype)).sum(1)
        for block in self.blocks:
            x_BW = x_BW + self.drop(torch.relu(block(x_BW)))
        scores_BP: Tensor = self.head(x_BW)
        return scores_BP


@register
class TenSetMLP(StoreModel):
    kind: ClassVar[str] = "tenset-mlp"
    config_class = TenSetMLPConfig
    body_class = TenSetMLPBody
