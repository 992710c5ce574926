"""Quantised graphs, computed in float: what a quantised value stands for takes its place.

Rounding is left out, the range a quantised type can hold is kept as a clip, since quantisers
express a ReLU by it. A value that somebody reads as integers is still made as integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorese.workloads.onnx_graph.graph import Graph, Node

NOTE = "the model is quantised and computed in float: outputs differ by what quantising rounds"
# These only move elements: what holds for the quantised values holds for the real ones.
_MOVES = (
    *("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Expand", "Gather"),
    *("MaxPool", "Resize"),
)


@dataclass(frozen=True, kw_only=True)
class Real:
    """What a quantised value stands for."""

    value: str
    """In float; where `scale` is set, times the scale that is still to come."""
    scale: str
    zero: str


def quantize(g: Graph, node: Node) -> Sequence[str] | None:
    x, scale, zero = node.inputs[0], node.inputs[1], node.input(2)
    made = g.keep(Node(**{**node.__dict__, "domain": ""}))
    dtype = g.dtype(made[0])
    if not np.issubdtype(dtype, np.integer) or g.value(scale) is None:
        return made
    _state(g, made[0], _within_range(g, x, scale, zero, dtype, node), scale, zero)
    return made


def dequantize(g: Graph, node: Node) -> Sequence[str] | None:
    x, scale, zero = node.inputs[0], node.inputs[1], node.input(2)
    real = g.real.get(x)
    if real is not None and _same(g, real.scale, scale):
        return [real.value]
    stored, factor = g.value(x), g.value(scale)
    if stored is None or factor is None or node.get("block_size", 0):
        return None
    aside = [1] * stored.ndim
    if factor.size > 1:
        aside[int(node.get("axis", 1))] = -1
    at = g.known(zero).astype(np.float64) if zero else np.zeros(factor.size)
    values = (stored.astype(np.float64) - at.reshape(aside)) * factor.reshape(aside)
    return [g.const(values.reshape(stored.shape), factor.dtype)]


def dynamic_quantize(g: Graph, node: Node) -> Sequence[str]:
    made = g.keep(Node(**{**node.__dict__, "used": (True, True, True)}))
    _state(g, made[0], node.inputs[0], made[1], made[2])
    return made


def integer_product(g: Graph, node: Node) -> Sequence[str] | None:
    """MatMulInteger and ConvInteger: (a - zero) times (b - zero)."""
    real = g.real.get(node.inputs[0])
    if real is None:
        a = _shifted(g, node.inputs[0], node.input(2), np.float32)
    else:
        a = real.value
    right = g.value(node.inputs[1])
    if right is None:
        return None
    zero = g.value(node.input(3)) if node.input(3) else np.zeros((), right.dtype)
    if zero is None:
        return None
    zero = zero.astype(np.float32)
    if node.op == "ConvInteger" and zero.size > 1:
        zero = zero.reshape(-1, *[1] * (right.ndim - 1))
    b = g.const(right.astype(np.float32) - zero)
    attributes = dict(node.attributes)
    product = g.op("Conv" if node.op == "ConvInteger" else "MatMul", a, b, **attributes)
    made = g.cast(product, np.int32) if real is None else ""
    if real is None:
        return [made]
    whole = g.cast(g.op("Div", product, real.scale), np.int32)
    _state(g, whole, product, real.scale, "")
    return [whole]


def cast(g: Graph, node: Node) -> Sequence[str] | None:
    """The real value of an integer product, still lacking the scale, passes a cast."""
    real = g.real.get(node.inputs[0])
    if real is None or real.zero or node.get("to") != g.onnx.TensorProto.FLOAT:
        return None
    made = g.op("Div", real.value, real.scale)
    g.real[made] = real
    return [made]


def multiply(g: Graph, node: Node) -> Sequence[str] | None:
    """(a times scale) over scale, times scale: no scale is needed."""
    made_by = {name: one for one in g.nodes[-64:] for name in one.output if one.op_type == "Mul"}
    for x, factor in (node.inputs, node.inputs[::-1]):
        real = g.real.get(x)
        if real is None or real.zero:
            continue
        if factor == real.scale:
            return [real.value]
        product = made_by.get(factor)
        if product is not None and real.scale in product.input:
            (other,) = [n for n in product.input if n != real.scale] or [real.scale]
            return [g.op("Mul", real.value, other)]
    return None


def moved(g: Graph, node: Node) -> Sequence[str] | None:
    real = g.real.get(node.inputs[0])
    if real is None or node.outputs > 1:
        return None
    made = g.keep(node)
    attributes = dict(node.attributes)
    _state(
        g, made[0], g.op(node.op, real.value, *node.inputs[1:], **attributes), real.scale, real.zero
    )
    return made


# -- operators on quantised values -------------------------------------------------------------


def _qlinear(places: Sequence[int], compute: Callable[[Graph, Node, list[str]], str]) -> Any:
    """A rule for an operator that reads values at `places`, each followed by scale and zero
    point, and whose last two inputs are the scale and zero point of its output."""

    def rule(g: Graph, node: Node) -> Sequence[str]:
        reals = [_real(g, *(node.input(place + i) for i in range(3))) for place in places]
        scale_at = {"QLinearConv": 6, "QLinearMatMul": 6}.get(node.op, places[-1] + 3)
        scale, zero = node.input(scale_at), node.input(scale_at + 1)
        return [g.op("QuantizeLinear", compute(g, node, reals), scale, zero)]

    return rule


def _matmul(g: Graph, node: Node, reals: list[str]) -> str:
    return g.op("MatMul", *reals)


def _conv(g: Graph, node: Node, reals: list[str]) -> str:
    weight, scale = g.known(node.inputs[3]), g.known(node.inputs[4]).astype(np.float64)
    zero = g.known(node.inputs[5]).astype(np.float64)
    aside = (-1, *[1] * (weight.ndim - 1))
    if scale.size > 1 or zero.size > 1:
        values = (weight - zero.reshape(aside)) * scale.reshape(aside)
        reals = [reals[0], g.const(values, np.float32)]
    if node.input(8):
        bias = g.known(node.input(8)) * (g.known(node.inputs[1]) * scale)
        reals = [*reals, g.const(bias.reshape(-1), np.float32)]
    return g.op("Conv", *reals, **dict(node.attributes))


def _elementwise(op: str) -> Callable[[Graph, Node, list[str]], str]:
    return lambda g, node, reals: g.op(op, *reals, **_own(node))


def _own(node: Node) -> dict[str, Any]:
    return {k: v for k, v in node.attributes.items() if k not in ("channels_last", "opset")}


def concat(g: Graph, node: Node) -> Sequence[str]:
    scale, zero, rest = node.inputs[0], node.inputs[1], node.inputs[2:]
    parts = [_real(g, *rest[i : i + 3]) for i in range(0, len(rest), 3)]
    joined = g.op("Concat", *parts, axis=node.get("axis"))
    return [g.op("QuantizeLinear", joined, scale, zero)]


def matmul_to_float(g: Graph, node: Node) -> Sequence[str]:
    """a, b, a's scale, b's scale, zeros, bias."""
    a, b, a_scale, b_scale, a_zero, b_zero, bias = (node.input(i) for i in range(7))
    product = g.op("MatMul", _real(g, a, a_scale, a_zero), _real(g, b, b_scale, b_zero))
    return [g.op("Add", product, bias) if bias else product]


def dynamic_matmul(g: Graph, node: Node) -> Sequence[str]:
    """a in float, b, b's scale, b's zero, bias."""
    a, b, scale, zero, bias = (node.input(i) for i in range(5))
    product = g.op("MatMul", a, _real(g, b, scale, zero))
    return [g.op("Add", product, bias) if bias else product]


def gemm(g: Graph, node: Node) -> Sequence[str]:
    """a and b, each with scale and zero, whole numbers to add, the output's scale and zero."""
    a, b = (_real(g, *(node.input(place + i) for i in range(3))) for place in (0, 3))
    inputs = [a, b]
    if node.input(6):
        scale = g.known(node.inputs[1]).astype(np.float64) * g.known(node.inputs[4])
        inputs.append(g.const(g.known(node.input(6)) * scale, np.float32))
    product = g.op("Gemm", *inputs, **dict(node.attributes))
    if not node.input(7):
        return [product]
    return [g.op("QuantizeLinear", product, node.input(7), node.input(8))]


# -- in common ---------------------------------------------------------------------------------


def _state(g: Graph, name: str, value: str, scale: str, zero: str) -> None:
    g.note(NOTE)
    g.real[name] = Real(value=value, scale=scale, zero=zero)


def _same(g: Graph, one: str, other: str) -> bool:
    known, second = g.value(one), g.value(other)
    return one == other or (
        known is not None and second is not None and np.array_equal(known, second)
    )


def _real(g: Graph, name: str, scale: str, zero: str) -> str:
    real = g.real.get(name)
    if real is not None:
        return str(real.value)
    return g.op("Mul", _shifted(g, name, zero, np.float32), g.cast(scale, np.float32))


def _shifted(g: Graph, name: str, zero: str, dtype: Any) -> str:
    x = g.cast(name, dtype)
    return g.op("Sub", x, g.cast(zero, dtype)) if zero else x


def _within_range(g: Graph, x: str, scale: str, zero: str, dtype: Any, node: Node) -> str:
    limits = np.iinfo(dtype)
    scales = g.known(scale).astype(np.float64)
    at = g.known(zero).astype(np.float64) if zero else np.zeros_like(scales)
    low, high = (limits.min - at) * scales, (limits.max - at) * scales
    if scales.size > 1:
        aside = [1] * len(g.shape(x))
        aside[int(node.get("axis", 1))] = -1
        low, high = low.reshape(aside), high.reshape(aside)
    kind = g.dtype(x)
    return g.op("Min", g.op("Max", x, g.const(low, kind)), g.const(high, kind))


def _unary(op: str) -> Any:
    return _qlinear([0], _elementwise(op))


_BINARY = {"QLinearAdd": "Add", "QLinearMul": "Mul"}
_UNARY = {
    "QLinearSigmoid": "Sigmoid",
    "QLinearLeakyRelu": "LeakyRelu",
    "QLinearSoftmax": "Softmax",
    "QLinearAveragePool": "AveragePool",
    "QLinearGlobalAveragePool": "GlobalAveragePool",
}
_CONTRIBUTED = "com.microsoft"
RULES: dict[Any, Any] = {
    ("", "QuantizeLinear"): quantize,
    ("", "DequantizeLinear"): dequantize,
    ("", "DynamicQuantizeLinear"): dynamic_quantize,
    ("", "MatMulInteger"): integer_product,
    ("", "ConvInteger"): integer_product,
    ("", "QLinearMatMul"): _qlinear([0, 3], _matmul),
    ("", "QLinearConv"): _qlinear([0, 3], _conv),
    (_CONTRIBUTED, "QuantizeLinear"): quantize,
    (_CONTRIBUTED, "DequantizeLinear"): dequantize,
    (_CONTRIBUTED, "QLinearConcat"): concat,
    (_CONTRIBUTED, "QGemm"): gemm,
    (_CONTRIBUTED, "MatMulIntegerToFloat"): matmul_to_float,
    (_CONTRIBUTED, "DynamicQuantizeMatMul"): dynamic_matmul,
    **{(_CONTRIBUTED, op): _qlinear([0, 3], _elementwise(to)) for op, to in _BINARY.items()},
    **{(_CONTRIBUTED, op): _unary(to) for op, to in _UNARY.items()},
    ("", "Cast"): cast,
    ("", "Mul"): multiply,
    **{("", op): moved for op in _MOVES},
}
