"""BERT (Devlin et al. 2018) and its smaller sizes (Turc et al. 2019): encoder and pooler.

One segment and no padding: the input is token ids alone. No task head is added.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from tensorese.workloads.zoo.attention import attend, split_heads

VOCABULARY, POSITIONS, EPS = 30522, 512, 1e-12


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm_1, self.norm_2 = nn.LayerNorm(width, EPS), nn.LayerNorm(width, EPS)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:  # [n, s, width]
        q, k, v = (split_heads(f(x), self.heads) for f in (self.query, self.key, self.value))
        x = self.norm_1(x + self.out(attend(q, k, v)))
        y: Tensor = self.norm_2(x + self.down(gelu(self.up(x))))
        return y


class Bert(nn.Module):
    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.word = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(POSITIONS, width)
        self.segment = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, EPS)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.pooler = nn.Linear(width, width)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:  # [n, s] -> [n, s, w], [n, w]
        places = self.position.weight[: ids.shape[1]] + self.segment.weight[0]
        x = self.layers(self.norm(self.word(ids) + places))
        return x, torch.tanh(self.pooler(x[:, 0]))


def bert_tiny() -> nn.Module:
    return Bert(2, 128, 2)


def bert_mini() -> nn.Module:
    return Bert(4, 256, 4)


def bert_medium() -> nn.Module:
    return Bert(8, 512, 8)


def bert_base() -> nn.Module:
    return Bert(12, 768, 12)


def bert_large() -> nn.Module:
    return Bert(24, 1024, 16)
