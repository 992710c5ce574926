"""A tiny model that writes programs, with weights far from nothing."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from tensorese.models.tlm import FASTEST, TLM, TLMConfig, TLMNetwork

TARGET = '{"kind":"llvm","num-cores":2}'


def micro_writer(
    platforms: Iterable[str] = ("toy",), wish: int = FASTEST, target: str = TARGET
) -> TLM:
    torch.manual_seed(0)
    network = TLMNetwork(TLMConfig(width=16, layers=1, heads=2))
    torch.nn.init.normal_(network.head.weight, std=0.3)
    torch.nn.init.normal_(network.speed.weight, std=0.5)
    return TLM(network, dict.fromkeys(platforms, target), wish)
