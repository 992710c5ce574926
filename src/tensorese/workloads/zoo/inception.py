"""Inception-V3 (Szegedy et al. 2015) for inference: without the auxiliary classifier."""

from __future__ import annotations

import torch
from torch import Tensor, nn

Size = int | tuple[int, int]


def conv(c_in: int, c_out: int, kernel: Size, stride: int = 1, pad: Size = 0) -> nn.Sequential:
    layer = nn.Conv2d(c_in, c_out, kernel, stride, pad, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(c_out, eps=1e-3), nn.ReLU())


class Branches(nn.Module):
    """Several ways through, concatenated over channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:  # [n, c, h, w]
        return torch.cat([branch(x) for branch in self.branches], 1)


def pooled(c_in: int, c_out: int) -> nn.Sequential:
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), conv(c_in, c_out, 1))


def block_35(c_in: int, pool: int) -> Branches:  # figure 5
    return Branches(
        conv(c_in, 64, 1),
        nn.Sequential(conv(c_in, 48, 1), conv(48, 64, 5, pad=2)),
        nn.Sequential(conv(c_in, 64, 1), conv(64, 96, 3, pad=1), conv(96, 96, 3, pad=1)),
        pooled(c_in, pool),
    )


def reduce_to_17() -> Branches:
    deep = nn.Sequential(conv(288, 64, 1), conv(64, 96, 3, pad=1), conv(96, 96, 3, 2))
    return Branches(conv(288, 384, 3, 2), deep, nn.MaxPool2d(3, 2))


def row(c_in: int, c_out: int) -> nn.Sequential:
    return conv(c_in, c_out, (1, 7), pad=(0, 3))


def column(c_in: int, c_out: int) -> nn.Sequential:
    return conv(c_in, c_out, (7, 1), pad=(3, 0))


def block_17(c: int) -> Branches:  # figure 6, with n = 7
    return Branches(
        conv(768, 192, 1),
        nn.Sequential(conv(768, c, 1), row(c, c), column(c, 192)),
        nn.Sequential(conv(768, c, 1), column(c, c), row(c, c), column(c, c), row(c, 192)),
        pooled(768, 192),
    )


def reduce_to_8() -> Branches:
    seven = nn.Sequential(conv(768, 192, 1), row(192, 192), column(192, 192), conv(192, 192, 3, 2))
    three = nn.Sequential(conv(768, 192, 1), conv(192, 320, 3, 2))
    return Branches(three, seven, nn.MaxPool2d(3, 2))


def split_3x3() -> Branches:
    return Branches(conv(384, 384, (1, 3), pad=(0, 1)), conv(384, 384, (3, 1), pad=(1, 0)))


def block_8(c_in: int) -> Branches:  # figure 7
    return Branches(
        conv(c_in, 320, 1),
        nn.Sequential(conv(c_in, 384, 1), split_3x3()),
        nn.Sequential(conv(c_in, 448, 1), conv(448, 384, 3, pad=1), split_3x3()),
        pooled(c_in, 192),
    )


def inception_v3() -> nn.Module:
    stem = [conv(3, 32, 3, 2), conv(32, 32, 3), conv(32, 64, 3, pad=1), nn.MaxPool2d(3, 2)]
    stem += [conv(64, 80, 1), conv(80, 192, 3), nn.MaxPool2d(3, 2)]
    at_35 = [block_35(192, 32), block_35(256, 64), block_35(288, 64)]
    at_17 = [block_17(128), block_17(160), block_17(160), block_17(192)]
    at_8 = [block_8(1280), block_8(2048)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)]
    return nn.Sequential(*stem, *at_35, reduce_to_17(), *at_17, reduce_to_8(), *at_8, *head)
