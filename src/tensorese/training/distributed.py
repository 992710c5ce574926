"""Data-parallel training under `torchrun`: each process takes its share of every batch's groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import distributed, nn


@dataclass(frozen=True, kw_only=True)
class Process:
    rank: int = 0
    world: int = 1

    def wrap(self, model: nn.Module) -> nn.Module:
        if self.world == 1:
            return model
        # A head without labels in a batch has no gradient there.
        return nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)


@contextmanager
def launched() -> Iterator[Process]:
    """This process's place among those `torchrun` started; alone without it."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Process()
        return
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    distributed.init_process_group(backend)
    try:
        yield Process(rank=distributed.get_rank(), world=world)
    finally:
        distributed.destroy_process_group()
