"""GPT-2 small (Radford et al. 2019): 12 layers, logits through the tied embedding."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import gelu, linear

from tensorese.workloads.zoo.attention import attend, split_heads

VOCABULARY, POSITIONS = 50257, 1024
LAYERS, WIDTH, HEADS = 12, 768, 12


class GPT2Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:  # [n, s, width]
        q, k, v = (split_heads(part, HEADS) for part in self.qkv(self.norm_1(x)).chunk(3, -1))
        x = x + self.out(attend(q, k, v, causal=True))
        y: Tensor = x + self.down(gelu(self.up(self.norm_2(x)), approximate="tanh"))
        return y


class Gpt2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.word = nn.Embedding(VOCABULARY, WIDTH)
        self.position = nn.Embedding(POSITIONS, WIDTH)
        self.blocks = nn.Sequential(*(GPT2Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids: Tensor) -> Tensor:  # [n, s] -> logits [n, s, vocabulary]
        x = self.word(ids) + self.position.weight[: ids.shape[1]]
        return linear(self.norm(self.blocks(x)), self.word.weight)


def gpt2() -> nn.Module:
    return Gpt2()
