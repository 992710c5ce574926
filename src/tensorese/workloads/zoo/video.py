"""ResNet3D-18 (Tran et al. 2017, `R3D`): a residual network over frames, 400 Kinetics classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def conv_bn(c_in: int, c_out: int, kernel: int, stride: int) -> nn.Sequential:
    conv = nn.Conv3d(c_in, c_out, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm3d(c_out))


class VideoBlock(nn.Module):
    def __init__(self, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        second = conv_bn(c_out, c_out, 3, 1)
        self.body = nn.Sequential(conv_bn(c_in, c_out, 3, stride), nn.ReLU(), second)
        self.shortcut = conv_bn(c_in, c_out, 1, stride) if stride != 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:  # [n, c, t, h, w]
        return torch.relu(self.body(x) + self.shortcut(x))


def r3d_18() -> nn.Module:
    first = nn.Conv3d(3, 64, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False)
    layers: list[nn.Module] = [first, nn.BatchNorm3d(64), nn.ReLU()]
    c_in = 64
    for channels in (64, 128, 256, 512):
        layers += [
            VideoBlock(c_in, channels, 1 if channels == 64 else 2),
            VideoBlock(channels, channels, 1),
        ]
        c_in = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(512, 400))
