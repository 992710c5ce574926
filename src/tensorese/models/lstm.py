"""TenSet's LSTM baseline: a lowered program's stores read one after the other.

As published: two Linear and ReLU a store, one LSTM layer of the same width over the stores in
their order, its last state, two residual blocks, one Linear. Ours: the program's coarse vector
stands where TenSet has operator slots, and the state is taken after the last store that is there;
theirs goes on through the padding, so that a score depends on the longest program beside it.
Shape legend: see `store_parts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from tensorese.models.base import register
from tensorese.models.store_network import StoreModel
from tensorese.models.store_parts import Residuals, StatementEncoder


@dataclass(frozen=True, kw_only=True)
class LSTMConfig:
    width: int = 256
    blocks: int = 2
    """Residual blocks after the last state."""


class LSTMBody(nn.Module):
    def __init__(self, config: LSTMConfig, platforms: int) -> None:
        super().__init__()
        self.encoder = StatementEncoder(config.width)
        self.cell = nn.LSTM(config.width, config.width, batch_first=True)
        self.residuals = Residuals(config.width, config.blocks)
        self.head = nn.Linear(config.width, platforms)

    def forward(self, rows_BSF: Tensor, mask_BS: Tensor, coarse_BC: Tensor) -> Tensor:
        states_BSD, _ = self.cell(self.encoder(rows_BSF, coarse_BC))
        count_B = mask_BS.sum(1)
        # States look back only: what follows the last store has not touched its state.
        last_B = (count_B - 1).clamp(min=0)
        state_BD = states_BSD[torch.arange(len(last_B), device=last_B.device), last_B]
        state_BD = state_BD * (count_B > 0)[:, None].to(state_BD.dtype)
        scores_BP: Tensor = self.head(self.residuals(state_BD))
        return scores_BP


@register
class LSTM(StoreModel):
    kind: ClassVar[str] = "lstm"
    config_class = LSTMConfig
    body_class = LSTMBody
