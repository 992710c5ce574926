"""MobileNet-V2 (Sandler et al. 2018), MobileNet-V3 (Howard et al. 2019) and what is built alike:
MnasNet (Tan et al. 2018) and EfficientNet (Tan and Le 2019)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


def round_to_8(channels: float) -> int:
    """Channels in multiples of 8, never more than a tenth below `channels`."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def conv(
    c_in: int, c_out: int, kernel: int, stride: int, act: nn.Module, groups: int = 1,
    eps: float = 1e-5,
) -> list[nn.Module]:  # fmt: skip
    layer = nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [layer, nn.BatchNorm2d(c_out, eps=eps), act]


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int, squeezed: int, act: nn.Module, last: nn.Module) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            act,
            nn.Conv2d(squeezed, channels, 1),
            last,
        )

    def forward(self, x: Tensor) -> Tensor:  # [n, c, h, w]
        gated: Tensor = x * self.gate(x)
        return gated


class InvertedResidual(nn.Module):
    """Expand 1x1, depthwise, project 1x1 without activation; added to x where shapes allow."""

    def __init__(
        self, c_in: int, hidden: int, c_out: int, *, kernel: int, stride: int, act: nn.Module,
        gate: nn.Module | None = None, eps: float = 1e-5,
    ) -> None:  # fmt: skip
        super().__init__()
        expand = conv(c_in, hidden, 1, 1, act, eps=eps) if hidden != c_in else []
        depthwise = conv(hidden, hidden, kernel, stride, act, groups=hidden, eps=eps)
        gates = [gate] if gate is not None else []
        project = conv(hidden, c_out, 1, 1, nn.Identity(), eps=eps)
        self.body = nn.Sequential(*expand, *depthwise, *gates, *project)
        self.add = stride == 1 and c_in == c_out

    def forward(self, x: Tensor) -> Tensor:  # [n, c, h, w]
        y: Tensor = self.body(x)
        return x + y if self.add else y


def _classifier(channels: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(channels, 1000)]


def _stages(
    c_in: int, rows: Sequence[tuple[int, int, int, int, int]], act: nn.Module, gated: bool = False
) -> list[nn.Module]:
    """Of kernel, expansion, channels, repeats and the stride of the first, as the papers list."""
    layers: list[nn.Module] = []
    for kernel, expansion, c_out, repeats, first in rows:
        for i in range(repeats):
            stride, hidden = (first if i == 0 else 1), c_in * expansion
            gate = SqueezeExcite(hidden, c_in // 4, nn.SiLU(), nn.Sigmoid()) if gated else None
            layers.append(
                InvertedResidual(
                    c_in, hidden, c_out, kernel=kernel, stride=stride, act=act, gate=gate
                )
            )
            c_in = c_out
    return layers


def mobilenet_v2() -> nn.Module:
    relu6 = nn.ReLU6()
    rows = [
        (3, 1, 16, 1, 1), (3, 6, 24, 2, 2), (3, 6, 32, 3, 2), (3, 6, 64, 4, 2),
        (3, 6, 96, 3, 1), (3, 6, 160, 3, 2), (3, 6, 320, 1, 1),
    ]  # fmt: skip
    layers = [*conv(3, 32, 3, 2, relu6), *_stages(32, rows, relu6)]
    return nn.Sequential(*layers, *conv(320, 1280, 1, 1, relu6), *_classifier(1280))


def mnasnet1_0() -> nn.Module:
    relu = nn.ReLU()
    rows = [
        (3, 3, 24, 3, 2), (5, 3, 40, 3, 2), (5, 6, 80, 3, 2),
        (3, 6, 96, 2, 1), (5, 6, 192, 4, 2), (3, 6, 320, 1, 1),
    ]  # fmt: skip
    layers = conv(3, 32, 3, 2, relu)
    layers += [*conv(32, 32, 3, 1, relu, groups=32), *conv(32, 16, 1, 1, nn.Identity())]
    layers += _stages(16, rows, relu)
    return nn.Sequential(*layers, *conv(320, 1280, 1, 1, relu), *_classifier(1280))


def efficientnet_b0() -> nn.Module:
    swish = nn.SiLU()
    rows = [
        (3, 1, 16, 1, 1), (3, 6, 24, 2, 2), (5, 6, 40, 2, 2), (3, 6, 80, 3, 2),
        (5, 6, 112, 3, 1), (5, 6, 192, 4, 2), (3, 6, 320, 1, 1),
    ]  # fmt: skip
    layers = [*conv(3, 32, 3, 2, swish), *_stages(32, rows, swish, gated=True)]
    return nn.Sequential(*layers, *conv(320, 1280, 1, 1, swish), *_classifier(1280))


# kernel, hidden, channels, squeeze-excite, hard swish or ReLU, stride: tables 1 and 2 of the paper
_Row = tuple[int, int, int, bool, bool, int]
_LARGE: tuple[_Row, ...] = (
    (3, 16, 16, False, False, 1), (3, 64, 24, False, False, 2), (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2), (5, 120, 40, True, False, 1), (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2), (3, 200, 80, False, True, 1), (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1), (3, 480, 112, True, True, 1), (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2), (5, 960, 160, True, True, 1), (5, 960, 160, True, True, 1),
)  # fmt: skip
_SMALL: tuple[_Row, ...] = (
    (3, 16, 16, True, False, 2), (3, 72, 24, False, False, 2), (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2), (5, 240, 40, True, True, 1), (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1), (5, 144, 48, True, True, 1), (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1), (5, 576, 96, True, True, 1),
)  # fmt: skip


def _mobilenet_v3(rows: tuple[_Row, ...], wide: int) -> nn.Module:
    relu, swish, eps = nn.ReLU(), nn.Hardswish(), 1e-3
    layers, c_in = conv(3, 16, 3, 2, swish, eps=eps), 16
    for kernel, hidden, c_out, squeeze, hard, stride in rows:
        gate = None
        if squeeze:
            gate = SqueezeExcite(hidden, round_to_8(hidden / 4), nn.ReLU(), nn.Hardsigmoid())
        layers.append(
            InvertedResidual(
                c_in, hidden, c_out, kernel=kernel, stride=stride, act=swish if hard else relu,
                gate=gate, eps=eps,
            )
        )  # fmt: skip
        c_in = c_out
    layers += conv(c_in, 6 * c_in, 1, 1, swish, eps=eps)
    head = [nn.Linear(6 * c_in, wide), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(wide, 1000)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), *head)


def mobilenet_v3_large() -> nn.Module:
    return _mobilenet_v3(_LARGE, 1280)


def mobilenet_v3_small() -> nn.Module:
    return _mobilenet_v3(_SMALL, 1024)
