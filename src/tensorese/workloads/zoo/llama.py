"""LLaMA (Touvron et al. 2023) at the size TLM evaluates: 12 layers, width 768, MLP 3072.

RMSNorm, rotary positions on half-split heads, SwiGLU, no biases, an untied output head.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from tensorese.workloads.zoo.attention import attend, split_heads

VOCABULARY, LAYERS, WIDTH, MLP, HEADS = 32000, 12, 768, 3072, 12


class RmsNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


def angles(length: int) -> Tensor:
    """Position times frequency: [s, d]"""
    half = WIDTH // HEADS // 2
    frequency = 10000.0 ** (-torch.arange(half) / half)
    turn = torch.arange(length)[:, None] * frequency
    return torch.cat([turn, turn], -1)


def rotate(x: Tensor) -> Tensor:  # [n, h, s, d]
    low, high = x.chunk(2, -1)
    turn = angles(x.shape[2])
    return x * turn.cos() + torch.cat([-high, low], -1) * turn.sin()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = RmsNorm(), RmsNorm()
        self.query, self.key, self.value, self.out = (
            nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4)
        )
        self.gate, self.up = (nn.Linear(WIDTH, MLP, bias=False) for _ in range(2))
        self.down = nn.Linear(MLP, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:  # [n, s, width]
        y = self.norm_1(x)
        q, k, v = (split_heads(f(y), HEADS) for f in (self.query, self.key, self.value))
        x = x + self.out(attend(rotate(q), rotate(k), v, causal=True))
        y = self.norm_2(x)
        z: Tensor = x + self.down(silu(self.gate(y)) * self.up(y))
        return z


def llama_12l() -> nn.Module:
    """Token ids [n, s] to logits [n, s, vocabulary]."""
    blocks = [Block() for _ in range(LAYERS)]
    out = nn.Linear(WIDTH, VOCABULARY, bias=False)
    return nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), *blocks, RmsNorm(), out)
