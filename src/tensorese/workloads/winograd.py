"""3x3 convolutions by Winograd's algorithm, where fewer products are worth more memory traffic.

F(m x m, 3 x 3) computes m x m outputs with (m + 2)^2 products instead of 9 m^2: 2.25 times fewer
for m = 2, 4 times for m = 4. In exchange the data is written and read once more in between, and
the weights grow. Which is better is estimated here from the shapes; `tune` measures both where the
estimate is not sure (`either_way.py`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tensorese.tvm_env import import_tvm
from tensorese.workloads.choice import Choice
from tensorese.workloads.simplify import NetworkRewriter, rewritten
from tensorese.workloads.winograd_kernels import (
    TILES,
    input_transform,
    output_transform,
    tiles,
    transformed_weight,
)

# How many multiply-adds of a good kernel take as long as moving one element: of an intermediate
# tensor, which mostly stays in the caches of the cores, and of a weight, which comes from afar.
# Fitted to tuned kernels of SqueezeNet and ResNet on two AVX-512 cores, within a quarter of each.
_PER_ELEMENT = 8.0
_PER_WEIGHT = 16.0
_WORTH = 0.85
"""Of the direct convolution's cost: an estimate this much lower is acted upon."""
_INPUT, _OUTPUT = "winograd_input", "winograd_output"
_MORE_NAMES = 2
"""Variables of a transformed convolution, beyond the one of a direct. Kernels and their blocks are
named after numbered variables, and programs name blocks: numbers are as if by the estimates."""
_OUT_FUSIBLE, _OPAQUE = 4, 8  # relax operator patterns


def winograd(module: Any, choice: Choice) -> Any:
    """The module with convolutions replaced as chosen; NHWC and HWIO only."""
    return rewritten(module, partial(Winograd, choice))


class Winograd(NetworkRewriter):
    def __init__(self, choice: Choice, relax: Any, bindings: list[Any], output: Any) -> None:
        super().__init__(relax, bindings, output)
        self.choice = choice
        self.rules = {"relax.nn.conv2d": self.convolution}

    def convolution(self, call: Any, arguments: list[Any]) -> Any:
        x, weight = arguments
        if not self.is_constant(weight) or not _is_plain(call):
            return None
        shape = tuple(int(extent) for extent in call.ty.shape)
        key = (*shape, int(x.ty.shape[3]))
        self.choice.asked[key] += 1
        estimate = best_tile(shape, key[4])
        m = self.choice.way(key, estimate)
        if m == 0:
            for _ in range(_MORE_NAMES if estimate else 0):
                self.builder.get_unique_name("lv")
            return None
        hint = "" if estimate else "winograd"
        top, left = int(call.attrs.padding[0]), int(call.attrs.padding[1])
        values = self.constant(transformed_weight(weight.value.numpy(), m), "float32")
        emit, make = self.builder.emit, self.builder.call_te
        transform = make(input_transform, x, m, shape[1:3], (top, left), primfunc_name_hint=_INPUT)
        products = emit(self.relax.op.matmul(emit(transform, hint), values), hint)
        return emit(make(output_transform, products, m, shape, primfunc_name_hint=_OUTPUT))


def _is_plain(call: Any) -> bool:
    """3x3, stride and dilation one, one group, channels last and in whole vectors, fp32."""
    attrs = call.attrs
    kernel = [int(extent) for extent in call.args[1].ty.shape]
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout))
    return (
        layouts == ("NHWC", "HWIO", "NHWC")
        and kernel[:2] == [3, 3]
        and all(int(n) == 1 for n in (*attrs.strides, *attrs.dilation, attrs.groups))
        and kernel[2] % 8 == kernel[3] % 8 == 0
        and str(call.ty.dtype) == str(call.args[0].ty.dtype) == "float32"
    )


def best_tile(shape: tuple[int, ...], channels: int) -> int:
    """The m of the cheapest F(m x m, 3 x 3); 0 where the direct convolution is as good."""
    costs = estimates(shape, channels)
    m = min(TILES, key=costs.__getitem__)
    return m if costs[m] < _WORTH * costs[0] else 0


def estimates(shape: tuple[int, ...], channels: int) -> dict[int, float]:
    """The cost of each m, 0 being direct, in multiply-adds."""
    batch, height, width, filters = shape
    pixels = batch * height * width

    def cost(t: int, points: int) -> float:
        weights = t * t * channels * filters
        return (points + _PER_WEIGHT) * weights

    costs = {0: cost(3, pixels)}
    for m in TILES:
        t, points = m + 2, batch * tiles(height, m) * tiles(width, m)
        moved = (2 * t * t * points + pixels) * (channels + filters)
        costs[m] = cost(t, points) + _PER_ELEMENT * moved
    return costs


def keep_apart(module: Any) -> Any:
    """Transforms as this file means them to be fused, whatever TVM reads from their loops.

    What follows an output transform is fused into it; an input transform stays alone, or it would
    be computed anew for every window that reads it.
    """
    tvm = import_tvm()
    patterns = {_INPUT: _OPAQUE, _OUTPUT: _OUT_FUSIBLE}
    for var, function in module.functions.items():
        name = str(var.name_hint).rstrip("0123456789")
        if isinstance(function, tvm.tirx.PrimFunc) and name in patterns:
            module.update_func(var, function.with_attr("op_pattern", patterns[name]))
    return module
