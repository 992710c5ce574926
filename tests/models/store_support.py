"""Lowered programs made up, and small bodies of every kind that reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tensorese.features.lowered import COARSE, COLUMNS
from tensorese.models.atformer import ATFormerBody, ATFormerConfig
from tensorese.models.lstm import LSTMBody, LSTMConfig
from tensorese.models.mha import MHABody, MHAConfig
from tensorese.models.pacm import PaCMBody, PaCMConfig
from tensorese.models.tabnet import TabNetBody, TabNetConfig

WIDTH = 16
SMALL: dict[str, tuple[Callable[..., nn.Module], Any]] = {
    "atformer": (ATFormerBody, ATFormerConfig(width=WIDTH, heads=2)),
    "atformer 1L": (ATFormerBody, ATFormerConfig(width=WIDTH, heads=2, levels=1)),
    "atformer M": (ATFormerBody, ATFormerConfig(width=WIDTH, heads=2, hidden=0.3)),
    "lstm": (LSTMBody, LSTMConfig(width=WIDTH)),
    "mha": (MHABody, MHAConfig(width=WIDTH, heads=2)),
    "pacm": (PaCMBody, PaCMConfig(width=WIDTH, flow=8, heads=2)),
    "tabnet": (TabNetBody, TabNetConfig(width=WIDTH, decide=4, steps=2, ghost=8)),
}
"""By name: what makes the body, and its sizes."""


class Stores(NamedTuple):
    rows_BSF: Tensor
    mask_BS: Tensor
    coarse_BC: Tensor

    def one(self, k: int, stores: int) -> Stores:
        """A program alone, with padding up to so many stores."""
        rows = self.rows_BSF[k : k + 1, : int(self.mask_BS[k].sum())]
        more = stores - rows.shape[1]
        return Stores(
            rows_BSF=nn.functional.pad(rows, (0, 0, 0, more)),
            mask_BS=nn.functional.pad(
                torch.ones(1, rows.shape[1], dtype=torch.bool), (0, more), value=False
            ),
            coarse_BC=self.coarse_BC[k : k + 1],
        )


def made_up(counts: tuple[int, ...] = (3, 1, 5, 2), seed: int = 1) -> Stores:
    """Standardised rows of so many stores; the first two of a program share their nest."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(max(counts)) < torch.tensor(counts)[:, None]
    rows = torch.randn(len(counts), max(counts), COLUMNS, generator=generator)
    rows[:, 1:2, -3:] = rows[:, :1, -3:]
    coarse = torch.randn(len(counts), len(COARSE), generator=generator)
    return Stores(rows * mask[..., None], mask, coarse)


def small(name: str, platforms: int = 2) -> nn.Module:
    make, config = SMALL[name]
    torch.manual_seed(3)
    return make(config, platforms)
