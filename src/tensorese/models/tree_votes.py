"""Trees beside a TLP's networks; on a GPU torch walks them, to keep up with the networks.

Shape legend: N programs, H heads, T trees, V values of a program (its features come first).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from tensorese.models.trees import CERTAIN, SLOWEST, Forest

CHUNK = 65536  # programs at once


class TreeVotes:
    """A forest a platform, and for how many networks it counts."""

    def __init__(self, forests: Mapping[str, Forest], votes: int) -> None:
        self.forests = dict(forests)
        self.votes = votes
        self._placed: dict[tuple[str, torch.device], Placed] = {}

    def beside(self, each_NHM: Tensor, values_NV: Tensor, platforms: Sequence[str]) -> Tensor:
        """`[N, H, M + votes]`; where a platform has no trees its networks' mean stands in."""
        said = [
            self._logits(values_NV, name) if name in self.forests else each_NHM[:, k].mean(-1)
            for k, name in enumerate(platforms)
        ]
        told_NH1 = torch.stack(said, dim=1).to(each_NHM.device, each_NHM.dtype)[..., None]
        return torch.cat([each_NHM, told_NH1.expand(-1, -1, self.votes)], dim=-1)

    def _logits(self, values_NV: Tensor, platform: str) -> Tensor:
        """`[N]`: the share of the best's speed as a rank score, of which it is the sigmoid."""
        share_N = self._share(values_NV, platform).clamp(SLOWEST, CERTAIN)
        return torch.log(share_N / (1.0 - share_N))

    def _share(self, values_NV: Tensor, platform: str) -> Tensor:
        forest = self.forests[platform]
        if values_NV.device.type == "cpu":  # numpy is ten times faster there
            features = values_NV.float().numpy()
            return torch.from_numpy(forest.predict(features).astype(np.float32))
        key = (platform, values_NV.device)
        if key not in self._placed:
            self._placed[key] = Placed(forest, values_NV.device)
        return self._placed[key].predict(values_NV)


class Placed:
    """The arrays of a forest on one device."""

    def __init__(self, forest: Forest, device: torch.device) -> None:
        self.feature = torch.from_numpy(forest.feature).long().to(device)
        self.threshold = torch.from_numpy(forest.threshold).to(device)
        self.child = torch.from_numpy(forest.child).long().to(device)
        self.value = torch.from_numpy(forest.value).to(device)
        self.roots = torch.from_numpy(forest.roots).long().to(device)
        self.depth = forest.depth

    def predict(self, values_NV: Tensor) -> Tensor:
        """`[N]`."""
        parts = [self._walk(piece) for piece in torch.split(values_NV.float(), CHUNK)]
        return torch.cat(parts) if parts else values_NV.new_zeros(0)

    def _walk(self, values_NV: Tensor) -> Tensor:
        node_NT = self.roots.expand(len(values_NV), -1)
        for _ in range(self.depth):
            value_NT = values_NV.gather(1, self.feature[node_NT])
            goes_right_NT = value_NT > self.threshold[node_NT]
            node_NT = self.child[2 * node_NT + goes_right_NT]
        return self.value[node_NT].sum(1)
