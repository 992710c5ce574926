"""Networks as people write them in torch, small: three in plain torch, the others by a library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Made = tuple[nn.Module, Any]
"""A module and its inputs: a tuple, or a dict of those passed by name."""
WORDS, LENGTH = 512, 32


class MaskedEncoder(nn.Module):
    """BERT's block: embeddings, attention that leaves padding out, a feed-forward part."""

    def __init__(self, width: int = 64, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.words = nn.Embedding(WORDS, width)
        self.places = nn.Embedding(LENGTH, width)
        self.joint = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.feed = nn.Sequential(nn.Linear(width, 128), nn.GELU(), nn.Linear(128, width))

    def forward(self, ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        n, length, width = x.shape
        parts = self.joint(x).view(n, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        seen = mask[:, None, None, :].bool()
        y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        x = self.norms[0](x + self.out(y.transpose(1, 2).reshape(n, length, width)))
        x = self.norms[1](x + self.feed(x))
        return {"states": x, "pooled": torch.tanh(x[:, 0])}


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(16, 24, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(48, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        states, (last, _) = self.cells(x)
        return self.head(states), last


def _twice(narrow: int, wide: int) -> nn.Module:
    layers: list[nn.Module] = []
    for channels in (narrow, wide):
        layers += [nn.Conv2d(channels, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.down = nn.ModuleList([_twice(3, width), _twice(width, 2 * width)])
        self.bottom = _twice(2 * width, 4 * width)
        self.grow = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.up = nn.ModuleList([_twice(4 * width, 2 * width), _twice(3 * width, width)])
        self.wider = nn.Upsample(scale_factor=2, mode="bilinear")
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.down[0](x)
        b = self.down[1](self.pool(a))
        c = self.up[0](torch.cat([b, self.grow(self.bottom(self.pool(b)))], 1))
        y: Tensor = self.head(self.up[1](torch.cat([a, self.wider(c)], 1)))
        return y


class Grouped(nn.Module):
    """ResNeXt's block: a bottleneck whose middle is a grouped convolution."""

    def __init__(self, narrow: int, middle: int, wide: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(narrow, middle, 1, bias=False),
            nn.BatchNorm2d(middle),
            nn.ReLU(),
            nn.Conv2d(middle, middle, 3, stride, 1, groups=8, bias=False),
            nn.BatchNorm2d(middle),
            nn.ReLU(),
            nn.Conv2d(middle, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
        )
        self.short = nn.Sequential(nn.Conv2d(narrow, wide, 1, stride), nn.BatchNorm2d(wide))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.path(x) + self.short(x))


def _resnext() -> Made:
    stem = [nn.Conv2d(3, 16, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    blocks = [Grouped(16, 32, 64, 1), Grouped(64, 64, 128, 2)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)]
    return nn.Sequential(*stem, *blocks, *head), (torch.randn(1, 3, 64, 64),)


def tokens() -> dict[str, Tensor]:
    """Words of one sentence, padded by a quarter."""
    mask = torch.ones(1, LENGTH, dtype=torch.int64)
    mask[:, 3 * LENGTH // 4 :] = 0
    return {"input_ids": torch.randint(3, WORDS, (1, LENGTH)), "attention_mask": mask}


def _masked() -> Made:
    named = tokens()
    return MaskedEncoder(), (named["input_ids"], named["attention_mask"])


PLAIN: dict[str, Callable[[], Made]] = {
    "masked": _masked,
    "lstm": lambda: (Recurrent(), (torch.randn(1, 6, 16),)),
    "unet": lambda: (UNet(), (torch.randn(1, 3, 32, 32),)),
    "resnext": _resnext,
}

_SMALL = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 64}
# Model class and config of `transformers`, by what the network is called.
LIBRARY: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertModel", "BertConfig", {**_SMALL, "intermediate_size": 128}),
    "distilbert": (
        "DistilBertModel",
        "DistilBertConfig",
        {"dim": 64, "n_layers": 2, "n_heads": 2, "hidden_dim": 128},
    ),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {"n_embd": 64, "n_layer": 2, "n_head": 2, "bos_token_id": 0, "eos_token_id": 0},
    ),
    "t5_encoder": (
        "T5EncoderModel",
        "T5Config",
        {"d_model": 64, "num_layers": 2, "num_heads": 2, "d_kv": 32, "d_ff": 128},
    ),
    "llama": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {**_SMALL, "num_key_value_heads": 1, "intermediate_size": 128},
    ),
    "vit": ("ViTModel", "ViTConfig", {**_SMALL, "intermediate_size": 128, "image_size": 64}),
    "whisper_encoder": (
        "WhisperModel",
        "WhisperConfig",
        {
            "d_model": 64,
            "encoder_layers": 2,
            "decoder_layers": 1,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 128,
            "max_source_positions": 100,
        },
    ),
    "convnext": (
        "ConvNextModel",
        "ConvNextConfig",
        {"hidden_sizes": [16, 32, 64, 128], "depths": [1, 1, 2, 1]},
    ),
    "efficientnet": (
        "EfficientNetModel",
        "EfficientNetConfig",
        {
            "width_coefficient": 0.5,
            "depth_coefficient": 0.3,
            "hidden_dim": 640,
            "image_size": 64,
        },
    ),
}
_TEXT = ("bert", "distilbert", "gpt2", "t5_encoder", "llama")


def from_library(transformers: Any, name: str) -> Made:
    """Built from a config: random weights, nothing is fetched."""
    model, config, options = LIBRARY[name]
    if name in _TEXT:
        options = {**options, "vocab_size": WORDS, "use_cache": False}
    made = getattr(transformers, model)(getattr(transformers, config)(**options))
    if name in _TEXT:
        return made, tokens()
    if name == "whisper_encoder":
        return made.encoder, (torch.randn(1, 80, 200),)
    return made, {"pixel_values": torch.randn(1, 3, 64, 64)}
