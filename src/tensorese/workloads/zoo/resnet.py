"""ResNet (He et al. 2015), ResNeXt (Xie et al. 2016) and Wide ResNet (Zagoruyko 2016).

The stride of a bottleneck sits on its 3x3 convolution, as in every published checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def conv_bn(c_in: int, c_out: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(c_out))


class Residual(nn.Module):
    """relu(body(x) + shortcut(x)); the shortcut projects when shapes differ."""

    def __init__(self, body: nn.Module, c_in: int, c_out: int, stride: int) -> None:
        super().__init__()
        self.body = body
        changed = stride != 1 or c_in != c_out
        self.shortcut = conv_bn(c_in, c_out, 1, stride) if changed else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:  # [n, c, h, w]
        return torch.relu(self.body(x) + self.shortcut(x))


def basic(c_in: int, width: int, stride: int) -> Residual:
    body = nn.Sequential(conv_bn(c_in, width, 3, stride), nn.ReLU(), conv_bn(width, width, 3))
    return Residual(body, c_in, width, stride)


def bottleneck(c_in: int, c_out: int, stride: int, *, inner: int, groups: int) -> Residual:
    body = nn.Sequential(
        conv_bn(c_in, inner, 1),
        nn.ReLU(),
        conv_bn(inner, inner, 3, stride, groups),
        nn.ReLU(),
        conv_bn(inner, c_out, 1),
    )
    return Residual(body, c_in, c_out, stride)


def stem() -> nn.Sequential:
    return nn.Sequential(conv_bn(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))


def head(channels: int) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def resnet18() -> nn.Module:
    blocks, c_in = [], 64
    for width in (64, 128, 256, 512):
        stride = 1 if width == 64 else 2
        blocks += [basic(c_in, width, stride), basic(width, width, 1)]
        c_in = width
    return nn.Sequential(stem(), *blocks, head(512))


def _deep(depths: Sequence[int], *, width_per_group: int = 64, groups: int = 1) -> nn.Module:
    blocks: list[nn.Module] = []
    c_in = 64
    for stage, depth in enumerate(depths):
        width = 64 << stage
        inner = width * width_per_group // 64 * groups
        for i in range(depth):
            stride = 2 if stage and i == 0 else 1
            blocks.append(bottleneck(c_in, 4 * width, stride, inner=inner, groups=groups))
            c_in = 4 * width
    return nn.Sequential(stem(), *blocks, head(c_in))


def resnet50() -> nn.Module:
    return _deep((3, 4, 6, 3))


def resnext50_32x4d() -> nn.Module:
    return _deep((3, 4, 6, 3), width_per_group=4, groups=32)


def wide_resnet50_2() -> nn.Module:
    return _deep((3, 4, 6, 3), width_per_group=128)
