"""DeiT (Touvron et al. 2020): the vision transformer (Dosovitskiy et al. 2020) in smaller sizes.

Patches of 16 x 16; published for 224 x 224, and any other side gets as many positions as patches.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from tensorese.workloads.zoo.attention import attend, split_heads

PATCH, PUBLISHED, LAYERS, EPS = 16, 224, 12, 1e-6


class ViTBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width, EPS), nn.LayerNorm(width, EPS)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:  # [n, s, width]
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(self.norm_1(x)).chunk(3, -1))
        x = x + self.out(attend(q, k, v))
        y: Tensor = x + self.down(gelu(self.up(self.norm_2(x))))
        return y


class Vit(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, PATCH, PATCH)
        self.first = nn.Parameter(torch.randn(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, (PUBLISHED // PATCH) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(ViTBlock(width, heads) for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(width, EPS), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:  # [n, 3, h, w] -> [n, 1000]
        x = self.patches(x).flatten(2).transpose(1, 2)  # [n, patches, width]
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1)
        x = self.blocks(x + self.position[:, : x.shape[1]])
        y: Tensor = self.head(self.norm(x)[:, 0])
        return y


def deit_tiny() -> nn.Module:
    return Vit(192, 3)


def deit_small() -> nn.Module:
    return Vit(384, 6)
