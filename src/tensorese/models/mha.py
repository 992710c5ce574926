"""TenSet's attention baseline: a lowered program's stores look at each other once.

As published: two Linear and ReLU a store to width 1024, one attention of 8 heads with a residual,
one Linear a store, summed over the stores. Ours: the program's coarse vector beside each row (the
published preset, commented out there, reads the row alone), and stores that only pad are neither
looked at nor summed. Shape legend: see `store_parts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from tensorese.models.base import register
from tensorese.models.store_network import StoreModel
from tensorese.models.store_parts import Attention, StatementEncoder, bias_of, check_heads, summed


@dataclass(frozen=True, kw_only=True)
class MHAConfig:
    width: int = 1024
    heads: int = 8

    def __post_init__(self) -> None:
        check_heads(self.width, self.heads)


class MHABody(nn.Module):
    def __init__(self, config: MHAConfig, platforms: int) -> None:
        super().__init__()
        self.encoder = StatementEncoder(config.width)
        self.attention = Attention(config.width, config.heads)
        self.head = nn.Linear(config.width, platforms)

    def forward(self, rows_BSF: Tensor, mask_BS: Tensor, coarse_BC: Tensor) -> Tensor:
        x_BSD = self.encoder(rows_BSF, coarse_BC)
        x_BSD = x_BSD + self.attention(x_BSD, x_BSD, bias_of(mask_BS))
        return summed(self.head(x_BSD), mask_BS)


@register
class MHA(StoreModel):
    kind: ClassVar[str] = "mha"
    config_class = MHAConfig
    body_class = MHABody
