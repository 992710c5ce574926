"""ATFormer: a lowered program read at two levels, statements and the program, by attention.

The paper published neither code nor sizes. From it: a kernel embedding of every innermost
statement (a store's row beside the program's coarse vector), attention among the statements,
attention at the level of the program, a light network that gives the score; presets `1L` with the
first level only and `M` with masks; RMSE or ranking loss. Recalled of it, not verified: width 512
and an embedding of two Linear and ReLU; with these our `1L` has 1.5 and ours of two levels 2.5
million parameters.

Chosen here, where the paper says nothing:

- 8 heads; normalised inputs of each attention, a residual around it; no positions, as the order of
  stores carries no meaning.
- The program's level: a nest is what shares the product and the number of outer loops, its token
  the mean of its statements; the program's token, from the sum of the statements and the coarse
  vector, looks at the nests and itself. Every statement stands for its nest with one share of the
  nest's weight, which is the same as one token a nest, without ragged lists. Few share one: CPU
  programs of `data/` have 2.5 statements in 2.46 nests on average.
- The light network: Linear to a quarter of the width, ReLU, Linear.
- The mask of `M`: while training, a share of a program's statements is hidden from everything
  that follows the embedding; at least one is left. Scoring hides none, and neither does training
  that goes on from another model. Stores that only pad are masked in every preset.

Shape legend: see `store_parts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from tensorese.features.lowered import COARSE, COLUMNS
from tensorese.models.base import register
from tensorese.models.store_network import StoreModel
from tensorese.models.store_parts import Attention, StatementEncoder, bias_of, check_heads, summed

NEST = slice(COLUMNS - 3, COLUMNS - 1)
"""Columns of a row by which statements share a nest: product and number of outer loops."""
_LIGHT = 4


@dataclass(frozen=True, kw_only=True)
class ATFormerConfig:
    width: int = 512
    heads: int = 8
    levels: int = 2
    """1: attention among statements only; 2: the program's level after it."""
    hidden: float = 0.0
    """Share of the statements that a training step hides."""

    def __post_init__(self) -> None:
        check_heads(self.width, self.heads)
        if self.levels not in (1, 2):
            raise ValueError(f"levels must be 1 or 2, got {self.levels}")
        if not 0.0 <= self.hidden < 1.0:
            raise ValueError(f"hidden must be a share below 1, got {self.hidden}")


def one_level() -> ATFormerConfig:
    return ATFormerConfig(levels=1)


def masked() -> ATFormerConfig:
    return ATFormerConfig(hidden=0.15)


class ATFormerBody(nn.Module):
    def __init__(self, config: ATFormerConfig, platforms: int) -> None:
        super().__init__()
        width = config.width
        self.hidden = config.hidden
        self.encoder = StatementEncoder(width)
        self.norm = nn.LayerNorm(width)
        self.statements = Attention(width, config.heads)
        self.program = ProgramLevel(width, config.heads) if config.levels == 2 else None
        light = max(1, width // _LIGHT)
        self.head = nn.Sequential(nn.Linear(width, light), nn.ReLU(), nn.Linear(light, platforms))

    def forward(self, rows_BSF: Tensor, mask_BS: Tensor, coarse_BC: Tensor) -> Tensor:
        if self.training and self.hidden:
            mask_BS = _some(mask_BS, self.hidden)
        x_BSD = self.encoder(rows_BSF, coarse_BC)
        normed = self.norm(x_BSD)
        x_BSD = x_BSD + self.statements(normed, normed, bias_of(mask_BS))
        program_BD = summed(x_BSD, mask_BS)
        if self.program is not None:
            same_BSS = _same_nest(rows_BSF, mask_BS)
            program_BD = self.program(program_BD, x_BSD, same_BSS, mask_BS, coarse_BC)
        scores_BP: Tensor = self.head(program_BD)
        return scores_BP


class ProgramLevel(nn.Module):
    """The program's token looks at its nests and itself."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.coarse = nn.Linear(len(COARSE), width)
        self.norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)

    def forward(
        self, sum_BD: Tensor, x_BSD: Tensor, same_BSS: Tensor, mask_BS: Tensor, coarse_BC: Tensor
    ) -> Tensor:
        members_BS = same_BSS.sum(-1).clamp(min=1.0)
        nests_BSD = same_BSS.to(x_BSD.dtype) @ x_BSD / members_BS[..., None].to(x_BSD.dtype)
        token_BD = sum_BD + self.coarse(coarse_BC)
        tokens = self.norm(torch.cat([token_BD[:, None], nests_BSD], dim=1))
        # One over the members of a nest: together they weigh as one token.
        bias = nn.functional.pad(bias_of(mask_BS) - members_BS.log(), (1, 0))
        out: Tensor = token_BD + self.attention(tokens[:, :1], tokens, bias)[:, 0]
        return out


def _same_nest(rows_BSF: Tensor, mask_BS: Tensor) -> Tensor:
    nest = rows_BSF[..., NEST]
    same = (nest[:, :, None] == nest[:, None]).all(-1)
    return (same & mask_BS[:, None] & mask_BS[:, :, None]).to(rows_BSF.dtype)


def _some(mask_BS: Tensor, hidden: float) -> Tensor:
    """Fewer of the stores, but one at least."""
    luck = torch.rand(mask_BS.shape, device=mask_BS.device).masked_fill(~mask_BS, -1.0)
    first = luck == luck.max(1, keepdim=True).values
    return mask_BS & ((luck >= hidden) | first)


@register
class ATFormer(StoreModel):
    kind: ClassVar[str] = "atformer"
    config_class = ATFormerConfig
    body_class = ATFormerBody

    @classmethod
    def preset(cls, name: str) -> ATFormerConfig:
        return {"1L": one_level, "M": masked}.get(name, ATFormerConfig)()
