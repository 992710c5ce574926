"""VGG-16 (Simonyan & Zisserman 2014), configuration D, without batch norm."""

from __future__ import annotations

from torch import nn


def vgg16() -> nn.Module:
    layers: list[nn.Module] = []
    c_in = 3
    for channels, repeats in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(repeats):
            layers += [nn.Conv2d(c_in, channels, 3, padding=1), nn.ReLU()]
            c_in = channels
        layers.append(nn.MaxPool2d(2))
    # The pool lets other image sizes reach the same 7x7 classifier; at 224 it is the identity.
    layers += [nn.AdaptiveAvgPool2d(7), nn.Flatten(), nn.Linear(512 * 49, 4096), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000))
