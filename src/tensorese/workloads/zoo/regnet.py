"""RegNet (Radosavovic et al. 2020): ResNet's bottleneck without a neck, grouped by width."""

from __future__ import annotations

from torch import nn

from tensorese.workloads.zoo.resnet import Residual, conv_bn, head

GROUP_WIDTH = 16


def _block(c_in: int, width: int, stride: int) -> Residual:
    body = nn.Sequential(
        conv_bn(c_in, width, 1),
        nn.ReLU(),
        conv_bn(width, width, 3, stride, width // GROUP_WIDTH),
        nn.ReLU(),
        conv_bn(width, width, 1),
    )
    return Residual(body, c_in, width, stride)


def regnet_x_400mf() -> nn.Module:
    layers: list[nn.Module] = [conv_bn(3, 32, 3, 2), nn.ReLU()]
    c_in = 32
    for depth, width in ((1, 32), (2, 64), (7, 160), (12, 400)):
        for i in range(depth):
            layers.append(_block(c_in, width, 2 if i == 0 else 1))
            c_in = width
    return nn.Sequential(*layers, head(c_in))
