"""MobileNet-V2 (Sandler et al. 2018) and MobileNet-V3 large (Howard et al. 2019)."""

from __future__ import annotations

from torch import Tensor, nn


def round_to_8(channels: float) -> int:
    """Channels in multiples of 8, never more than a tenth below what was asked."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def conv(
    c_in: int, c_out: int, kernel: int, stride: int, act: nn.Module, groups: int = 1,
    eps: float = 1e-5,
) -> list[nn.Module]:  # fmt: skip
    layer = nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [layer, nn.BatchNorm2d(c_out, eps=eps), act]


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        squeezed = round_to_8(channels / 4)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            nn.ReLU(),
            nn.Conv2d(squeezed, channels, 1),
            nn.Hardsigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:  # [n, c, h, w]
        gated: Tensor = x * self.gate(x)
        return gated


class InvertedResidual(nn.Module):
    """Expand 1x1, depthwise, project 1x1 without activation; added to x where shapes allow."""

    def __init__(
        self, c_in: int, hidden: int, c_out: int, *, kernel: int, stride: int, act: nn.Module,
        squeeze: bool = False, eps: float = 1e-5,
    ) -> None:  # fmt: skip
        super().__init__()
        expand = conv(c_in, hidden, 1, 1, act, eps=eps) if hidden != c_in else []
        depthwise = conv(hidden, hidden, kernel, stride, act, groups=hidden, eps=eps)
        gate = [SqueezeExcite(hidden)] if squeeze else []
        project = conv(hidden, c_out, 1, 1, nn.Identity(), eps=eps)
        self.body = nn.Sequential(*expand, *depthwise, *gate, *project)
        self.add = stride == 1 and c_in == c_out

    def forward(self, x: Tensor) -> Tensor:  # [n, c, h, w]
        y: Tensor = self.body(x)
        return x + y if self.add else y


def mobilenet_v2() -> nn.Module:
    relu6 = nn.ReLU6()
    layers, c_in = conv(3, 32, 3, 2, relu6), 32
    # expansion, channels, repeats, stride of the first: table 2 of the paper
    for expansion, c_out, repeats, first in [
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
        (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ]:  # fmt: skip
        for i in range(repeats):
            stride, hidden = (first if i == 0 else 1), c_in * expansion
            layers.append(InvertedResidual(c_in, hidden, c_out, kernel=3, stride=stride, act=relu6))
            c_in = c_out
    layers += conv(c_in, 1280, 1, 1, relu6)
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, 1000)
    )


def mobilenet_v3_large() -> nn.Module:
    relu, swish, eps = nn.ReLU(), nn.Hardswish(), 1e-3
    layers, c_in = conv(3, 16, 3, 2, swish, eps=eps), 16
    # kernel, hidden, channels, squeeze-excite, activation, stride: table 1 of the paper
    for kernel, hidden, c_out, squeeze, act, stride in [
        (3, 16, 16, False, relu, 1), (3, 64, 24, False, relu, 2), (3, 72, 24, False, relu, 1),
        (5, 72, 40, True, relu, 2), (5, 120, 40, True, relu, 1), (5, 120, 40, True, relu, 1),
        (3, 240, 80, False, swish, 2), (3, 200, 80, False, swish, 1),
        (3, 184, 80, False, swish, 1), (3, 184, 80, False, swish, 1),
        (3, 480, 112, True, swish, 1), (3, 672, 112, True, swish, 1),
        (5, 672, 160, True, swish, 2), (5, 960, 160, True, swish, 1),
        (5, 960, 160, True, swish, 1),
    ]:  # fmt: skip
        layers.append(
            InvertedResidual(
                c_in, hidden, c_out, kernel=kernel, stride=stride, act=act, squeeze=squeeze,
                eps=eps,
            )
        )  # fmt: skip
        c_in = c_out
    layers += conv(c_in, 960, 1, 1, swish, eps=eps)
    head = [nn.Linear(960, 1280), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1280, 1000)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), *head)
