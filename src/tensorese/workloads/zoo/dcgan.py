"""DCGAN's generator (Radford et al. 2015), 64x64 images, 64 base channels, 4x4 kernels."""

from __future__ import annotations

from torch import nn


def dcgan() -> nn.Module:
    layers: list[nn.Module] = [nn.ConvTranspose2d(100, 512, 4, 1, 0, bias=False)]
    for c_in in (512, 256, 128):
        up = nn.ConvTranspose2d(c_in, c_in // 2, 4, 2, 1, bias=False)
        layers += [nn.BatchNorm2d(c_in), nn.ReLU(), up]
    layers += [nn.BatchNorm2d(64), nn.ReLU(), nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False)]
    return nn.Sequential(*layers, nn.Tanh())
