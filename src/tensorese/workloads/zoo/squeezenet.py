"""SqueezeNet 1.1 (Iandola et al. 2016): few channels in, a 1x1 and a 3x3 side by side out."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Fire(nn.Module):
    def __init__(self, c_in: int, squeezed: int, each: int) -> None:
        super().__init__()
        self.squeeze = nn.Sequential(nn.Conv2d(c_in, squeezed, 1), nn.ReLU())
        self.left = nn.Sequential(nn.Conv2d(squeezed, each, 1), nn.ReLU())
        self.right = nn.Sequential(nn.Conv2d(squeezed, each, 3, padding=1), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:  # [n, c_in, h, w] -> [n, 2 * each, h, w]
        x = self.squeeze(x)
        return torch.cat([self.left(x), self.right(x)], 1)


def squeezenet1_1() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 2), nn.ReLU()]
    c_in = 64
    for squeezed, each in ((16, 64), (32, 128), (48, 192), (64, 256)):
        if squeezed < 64:  # the last four share their resolution
            layers.append(nn.MaxPool2d(3, 2, ceil_mode=True))
        for _ in range(2):
            layers.append(Fire(c_in, squeezed, each))
            c_in = 2 * each
    layers += [nn.Dropout(0.5), nn.Conv2d(c_in, 1000, 1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
