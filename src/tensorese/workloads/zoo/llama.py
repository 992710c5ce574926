"""LLaMA (Touvron et al. 2023) at the size TLM evaluates: 12 layers, width 768, MLP 3072.

RMSNorm, rotary positions on half-split heads, SwiGLU, no biases, an untied output head.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from tensorese.workloads.zoo.attention import attend, split_heads

VOCABULARY, POSITIONS = 32000, 2048
LAYERS, WIDTH, MLP, HEADS = 12, 768, 3072, 12


class RmsNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


def turns(length: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of position times frequency: [s, d] each."""
    half = WIDTH // HEADS // 2
    frequency = 10000.0 ** (-torch.arange(half, dtype=torch.float32) / half)
    angle = torch.arange(length, dtype=torch.float32)[:, None] * frequency
    angle = torch.cat([angle, angle], -1)
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:  # [n, h, s, d]
    low, high = x.chunk(2, -1)
    return x * cosine + torch.cat([-high, low], -1) * sine


class LlamaBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = RmsNorm(), RmsNorm()
        self.query, self.key, self.value, self.out = (
            nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4)
        )
        self.gate, self.up = (nn.Linear(WIDTH, MLP, bias=False) for _ in range(2))
        self.down = nn.Linear(MLP, WIDTH, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:  # [n, s, width]
        y = self.norm_1(x)
        q, k, v = (split_heads(f(y), HEADS) for f in (self.query, self.key, self.value))
        q, k = rotate(q, cosine, sine), rotate(k, cosine, sine)
        x = x + self.out(attend(q, k, v, causal=True))
        y = self.norm_2(x)
        z: Tensor = x + self.down(silu(self.gate(y)) * self.up(y))
        return z


class Llama(nn.Module):
    cosine: Tensor
    sine: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.word = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(LlamaBlock() for _ in range(LAYERS))
        self.norm = RmsNorm()
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        cosine, sine = turns(POSITIONS)
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:  # [n, s] -> logits [n, s, vocabulary]
        x, s = self.word(ids), ids.shape[1]
        for block in self.blocks:
            x = block(x, self.cosine[:s], self.sine[:s])
        logits: Tensor = self.head(self.norm(x))
        return logits


def llama_12l() -> nn.Module:
    return Llama()
