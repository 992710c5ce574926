"""RegNet (Radosavovic et al. 2020): ResNet's bottleneck without a neck, grouped by width."""

from __future__ import annotations

from torch import nn

from tensorese.workloads.zoo.resnet import bottleneck, conv_bn, head

GROUP_WIDTH = 16


def regnet_x_400mf() -> nn.Module:
    layers: list[nn.Module] = [conv_bn(3, 32, 3, 2), nn.ReLU()]
    c_in = 32
    for depth, width in ((1, 32), (2, 64), (7, 160), (12, 400)):
        for i in range(depth):
            stride, groups = (2 if i == 0 else 1), width // GROUP_WIDTH
            layers.append(bottleneck(c_in, width, stride, inner=width, groups=groups))
            c_in = width
    return nn.Sequential(*layers, head(c_in))
