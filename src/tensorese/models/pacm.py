"""PaCM, Pruner's cost model: a branch of statements beside a branch of memory movements.

As published: statements 174 -> 256 -> 256, summed; movements, rows of 23 -> 64 -> 128, one
attention of 4 heads with a residual, summed; both joined to 256, BatchNorm, two residual blocks,
Linear. Ours, because Pruner reads its rows from a compiler that is gone:

- A statement's row has our 164 columns and the program's coarse vector.
- A movement is a buffer that a store touches: of each of its five places in the row the 18 columns
  (kind of access, bytes, lines, reuse, stride), and beside them what is allocated (size, loops
  outside) and the loops around the store (product, number, unrolling), 23 in all. Pruner has eight
  movements a program; here there are as many as stores touch, places without a buffer are masked.

BatchNorm scores by its running statistics: a score does not depend on what is scored beside it.
Shape legend: see `store_parts`; M movements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensorese.features.lowered import BUFFERS
from tensorese.models.base import register
from tensorese.models.store_network import StoreModel
from tensorese.models.store_parts import (
    Attention,
    BatchNorm,
    Residuals,
    StatementEncoder,
    bias_of,
    check_heads,
    summed,
)

_FIRST, _EACH = 57, 18
"""Where a row's buffers begin, and columns of each."""
_KINDS = 3
"""The first columns of a buffer: read, written, both."""
_AROUND = (157, 159, 161, 162, 163)
"""Allocated bytes, loops outside the allocation; product and number of the loops, unrolling."""
MOVEMENT = _EACH + len(_AROUND)


@dataclass(frozen=True, kw_only=True)
class PaCMConfig:
    width: int = 256
    """Of the statements and of what follows both branches."""
    flow: int = 128
    """Width of the movements."""
    heads: int = 4
    blocks: int = 2

    def __post_init__(self) -> None:
        check_heads(self.flow, self.heads)


class PaCMBody(nn.Module):
    def __init__(self, config: PaCMConfig, platforms: int) -> None:
        super().__init__()
        self.encoder = StatementEncoder(config.width)
        self.movements = nn.Sequential(
            *(nn.Linear(MOVEMENT, config.flow // 2), nn.ReLU()),
            *(nn.Linear(config.flow // 2, config.flow), nn.ReLU()),
        )
        self.attention = Attention(config.flow, config.heads)
        self.join = nn.Linear(config.width + config.flow, config.width)
        self.norm = BatchNorm(config.width)
        self.residuals = Residuals(config.width, config.blocks)
        self.head = nn.Linear(config.width, platforms)

    def forward(self, rows_BSF: Tensor, mask_BS: Tensor, coarse_BC: Tensor) -> Tensor:
        statements_BD = summed(self.encoder(rows_BSF, coarse_BC), mask_BS)
        rows_BMX, there_BM = movements_of(rows_BSF, mask_BS)
        flow = self.movements(rows_BMX)
        flow = flow + self.attention(flow, flow, bias_of(there_BM))
        joined = torch.cat([statements_BD, summed(flow, there_BM)], dim=-1)
        x_BD = self.norm(F.relu(self.join(joined)))
        scores_BP: Tensor = self.head(self.residuals(x_BD))
        return scores_BP


def movements_of(rows_BSF: Tensor, mask_BS: Tensor) -> tuple[Tensor, Tensor]:
    """`[B, M, 23]` and which of them there are, in the order of stores and of their buffers."""
    flat = rows_BSF[..., _FIRST : _FIRST + BUFFERS * _EACH]
    buffers = flat.reshape(*flat.shape[:2], BUFFERS, _EACH)
    around = rows_BSF[..., _AROUND][:, :, None].expand(-1, -1, BUFFERS, -1)
    rows = torch.cat([buffers, around], dim=-1).flatten(1, 2)
    # A column of noughts and ones is above 0 at its ones, once standardised.
    kinds = buffers[..., :_KINDS] > 0
    there = kinds.any(-1) & mask_BS[..., None]
    there[..., 0] = mask_BS  # a store touches one at least
    there = there.flatten(1)
    return rows, there


@register
class PaCM(StoreModel):
    kind: ClassVar[str] = "pacm"
    config_class = PaCMConfig
    body_class = PaCMBody
