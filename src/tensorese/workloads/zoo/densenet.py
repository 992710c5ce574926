"""DenseNet-121 (Huang et al. 2016): every layer reads all earlier ones of its block."""

from __future__ import annotations

import torch
from torch import Tensor, nn

GROWTH = 32


def bn_relu_conv(c_in: int, c_out: int, kernel: int) -> nn.Sequential:
    conv = nn.Conv2d(c_in, c_out, kernel, padding=kernel // 2, bias=False)
    return nn.Sequential(nn.BatchNorm2d(c_in), nn.ReLU(), conv)


class DenseLayer(nn.Module):
    def __init__(self, c_in: int) -> None:
        super().__init__()
        squeeze = bn_relu_conv(c_in, 4 * GROWTH, 1)
        self.new = nn.Sequential(squeeze, bn_relu_conv(4 * GROWTH, GROWTH, 3))

    def forward(self, x: Tensor) -> Tensor:  # [n, c, h, w] -> [n, c + growth, h, w]
        return torch.cat([x, self.new(x)], 1)


def densenet121() -> nn.Module:
    conv = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
    layers: list[nn.Module] = [conv, nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for block, depth in enumerate((6, 12, 24, 16)):
        if block:
            layers += [bn_relu_conv(channels, channels // 2, 1), nn.AvgPool2d(2)]
            channels //= 2
        layers += [DenseLayer(channels + i * GROWTH) for i in range(depth)]
        channels += depth * GROWTH
    layers += [nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(channels, 1000))
