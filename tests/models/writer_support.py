"""A model that writes programs, untrained and tiny: it draws factorisations evenly."""

from __future__ import annotations

import torch

from tensorese.models.tlm import FASTEST, TLM, TLMConfig, TLMNetwork

TARGETS = {"toy": '{"kind":"llvm","num-cores":2}'}


def micro_writer(targets: dict[str, str] | None = None, wish: int = FASTEST) -> TLM:
    torch.manual_seed(0)
    network = TLMNetwork(TLMConfig(width=16, layers=1, heads=2))
    return TLM(network, targets or TARGETS, wish)
