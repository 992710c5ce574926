"""Heads that are held together: each is what all platforms have in common, and a little of its own.

A head with many labels pulls itself away from the others; one with a few hundred stays with them,
instead of learning everything they know from those few.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from tensorese.models.network import TorchNetwork

_HEAD = re.compile(r"\bheads\.\d+\.")


def head_groups(parameters: Mapping[str, Tensor]) -> list[list[Tensor]]:
    """Parameters that differ in the number of their head alone."""
    groups: dict[str, list[Tensor]] = {}
    for name, tensor in parameters.items():
        if _HEAD.search(name):
            groups.setdefault(_HEAD.sub("heads.", name), []).append(tensor)
    return [group for group in groups.values() if len(group) > 1]


@torch.no_grad()
def pull(groups: list[list[Tensor]], share: Tensor | float) -> None:
    """Moves every head a share of the way to the mean of all."""
    for group in groups:
        mean = torch.stack([tensor.detach() for tensor in group]).mean(0)
        for tensor in group:
            tensor.add_((mean - tensor) * share)


@torch.no_grad()
def start_alike(network: TorchNetwork) -> None:
    """All heads of each member become copies of its first."""
    for group in head_groups(dict(network.named_parameters())):
        for tensor in group[1:]:
            tensor.copy_(group[0])
