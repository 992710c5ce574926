"""Operators that TVM's front end lacks or computes otherwise, in ones it has right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tensorese.workloads.errors import NetworkError
from tensorese.workloads.onnx_graph.graph import Graph, Node

_BY_VALUE = ("NonZero", "NonMaxSuppression", "Unique", "Compress")
"""The shape of what they make depends on values."""
_BY_DEFINITION = (
    "Attention",
    "AffineGrid",
    "CenterCropPad",
    "GroupNormalization",
    "LinearAttention",
    "NegativeLogLikelihoodLoss",
    "RMSNormalization",
    "RotaryEmbedding",
    "SoftmaxCrossEntropyLoss",
    "SwiGLU",
    "Swish",
)
_SHAPING = {"Reshape": 1, "Expand": 1, "Tile": 1, "ConstantOfShape": 0, "TopK": 1}
"""Operators to the input that decides their output's shape."""


def same(graph: Graph, node: Node) -> Sequence[str]:
    return [node.inputs[0]]


def dropout(graph: Graph, node: Node) -> Sequence[str]:
    made = [node.inputs[0]]
    if node.outputs > 1:
        made.append(graph.const(np.ones(graph.shape(node.inputs[0]), bool)))
    return made


def shape(graph: Graph, node: Node) -> Sequence[str]:
    extents = graph.shape(node.inputs[0])
    start, end = int(node.get("start", 0)), node.get("end")
    return [graph.const(extents[start : len(extents) if end is None else int(end)], np.int64)]


def size(graph: Graph, node: Node) -> Sequence[str]:
    return [graph.const(int(np.prod(graph.shape(node.inputs[0]))), np.int64)]


def cast(graph: Graph, node: Node) -> Sequence[str] | None:
    """None to the same type; a wider type and back is none either."""
    x = node.inputs[0]
    to = np.dtype(graph.onnx.helper.tensor_dtype_to_np_dtype(node.get("to")))
    if graph.dtype(x) == to:
        return [x]
    maker = next((n for n in reversed(graph.nodes[-64:]) if x in n.output), None)
    if maker is not None and maker.op_type == "Cast":
        source = maker.input[0]
        if graph.dtype(source) == to and np.can_cast(to, graph.dtype(x), "safe"):
            return [source]
    return None


def cast_like(graph: Graph, node: Node) -> Sequence[str]:
    return [graph.cast(node.inputs[0], graph.dtype(node.inputs[1]))]


def by_definition(graph: Graph, node: Node) -> Sequence[str] | None:
    """The operator as ONNX itself defines it by others."""
    onnx = graph.onnx
    schema = onnx.defs.get_schema(node.op, graph.opset, "")
    names = [f"in{i}" if name else "" for i, name in enumerate(node.inputs)]
    proto = onnx.helper.make_node(
        node.op, names, [f"out{i}" for i in range(node.outputs)], **dict(node.attributes)
    )
    if schema.has_function:
        body = schema.function_body
    elif schema.has_context_dependent_function:
        kinds = [graph._type_of(name).SerializeToString() if name else b"" for name in node.inputs]
        body = onnx.FunctionProto.FromString(
            schema.get_context_dependent_function_with_opset_version(
                graph.opset, proto.SerializeToString(), kinds
            )
            if hasattr(schema, "get_context_dependent_function_with_opset_version")
            else schema.get_context_dependent_function(proto.SerializeToString(), kinds)
        )
    else:
        return None
    scope = dict(zip(body.input, node.inputs, strict=False))
    scope |= {name: "" for name in list(body.input)[len(node.inputs) :]}
    nodes = [_with_attributes(onnx, one, schema, node) for one in body.node]
    made = graph.walk(nodes, scope, set(body.output))
    return [made.get(name, "") for name in list(body.output)[: node.outputs]]


def _with_attributes(onnx: Any, proto: Any, schema: Any, node: Node) -> Any:
    """References to the function's attributes become their values."""
    copy = onnx.NodeProto()
    copy.CopyFrom(proto)
    del copy.attribute[:]
    for attribute in proto.attribute:
        if not attribute.ref_attr_name:
            copy.attribute.append(attribute)
            continue
        name = attribute.ref_attr_name
        value = node.attributes.get(name)
        if value is None and name in schema.attributes:
            default = schema.attributes[name].default_value
            value = onnx.helper.get_attribute_value(default) if default.name else None
        if value is not None:
            copy.attribute.append(onnx.helper.make_attribute(attribute.name, value))
    return copy


def layer_norm(graph: Graph, node: Node) -> Sequence[str] | None:
    return by_definition(graph, node) if any(node.used[1:]) else None


def batch_norm(g: Graph, node: Node) -> Sequence[str] | None:
    """By what the batch itself has, where the file was exported in training."""
    if not node.get("training_mode", 0):
        return None
    x, scale, bias, *running = node.inputs
    shape = g.shape(x)
    axes = [0, *range(2, len(shape))]
    column = [1, shape[1], *[1] * (len(shape) - 2)]

    def mean(value: str) -> str:
        if g.opset < 18:
            return g.op("ReduceMean", value, axes=axes)
        return g.op("ReduceMean", value, g.const(axes, np.int64))

    centre = mean(x)
    off = g.op("Sub", x, centre)
    variance = mean(g.op("Mul", off, off))
    deviation = g.op("Sqrt", g.op("Add", variance, g.like(node.get("epsilon", 1e-5), x)))
    y = g.op("Mul", g.op("Div", off, deviation), g.reshape(scale, column))
    made = [g.op("Add", y, g.reshape(bias, column))]
    kept = float(node.get("momentum", 0.9))
    for old, new in zip(running, (centre, variance), strict=True):
        new = g.cast(g.reshape(new, shape[1:2]), g.dtype(old))
        parts = [g.op("Mul", one, g.like(k, old)) for one, k in ((old, kept), (new, 1 - kept))]
        made.append(g.op("Add", *parts))
    return made[: node.outputs]


def eye_like(graph: Graph, node: Node) -> Sequence[str]:
    rows, columns = graph.shape(node.inputs[0])
    kind = node.get("dtype")
    dtype = (
        graph.dtype(node.inputs[0])
        if kind is None
        else graph.onnx.helper.tensor_dtype_to_np_dtype(kind)
    )
    return [graph.const(np.eye(rows, columns, int(node.get("k", 0))), dtype)]


def one_hot(g: Graph, node: Node) -> Sequence[str]:
    indices, depth, values = node.inputs
    if g.value(depth) is None:
        raise g.undecided("the depth of a OneHot", depth)
    count = int(g.known(depth).item())
    shape = list(g.shape(indices))
    axis = int(node.get("axis", -1)) % (len(shape) + 1)
    places = g.reshape(g.cast(indices, np.int64), [*shape[:axis], 1, *shape[axis:]])
    wrapped = g.op("Add", places, g.const(count, np.int64))
    places = g.op("Where", g.op("Less", places, g.const(0, np.int64)), wrapped, places)
    aside = [1] * (len(shape) + 1)
    aside[axis] = count
    hot = g.op("Equal", places, g.const(np.arange(count).reshape(aside), np.int64))
    off, on = (g.reshape(part, []) for part in g.split(values, 0, 2))
    return [g.op("Where", hot, on, off)]


def power(g: Graph, node: Node) -> Sequence[str] | None:
    """TVM wants one type for base and exponent, and raises floats alone."""
    base, exponent = node.inputs
    kind, other = g.dtype(base), g.dtype(exponent)
    if kind == other and kind.kind not in "iu":
        return None
    wide = np.dtype(np.float64) if kind.kind in "iu" else kind
    return [g.cast(g.op("Pow", g.cast(base, wide), g.cast(exponent, wide)), kind)]


def is_inf(g: Graph, node: Node) -> Sequence[str] | None:
    x = node.inputs[0]
    up, down = bool(node.get("detect_positive", 1)), bool(node.get("detect_negative", 1))
    if up and down:
        return None
    if not up and not down:
        return [g.const(np.zeros(g.shape(x), bool))]
    return [g.op("Equal", x, g.like(np.inf if up else -np.inf, x))]


def reduce_truth(g: Graph, node: Node) -> Sequence[str] | None:
    """The largest and smallest of truth values."""
    if g.dtype(node.inputs[0]) != np.dtype(bool):
        return None
    numbers = g.cast(node.inputs[0], np.int32)
    return [g.cast(g.op(node.op, numbers, *node.inputs[1:], **dict(node.attributes)), bool)]


def normalize(g: Graph, node: Node) -> Sequence[str]:
    """LpNormalization: over the norm along one axis."""
    x, axis = node.inputs[0], int(node.get("axis", -1))
    op = f"ReduceL{int(node.get('p', 2))}"
    if g.opset >= 18:
        norm = g.op(op, x, g.const([axis], np.int64), keepdims=1)
    else:
        norm = g.op(op, x, axes=[axis], keepdims=1)
    # What has no length stays as it is.
    return [g.op("Div", x, g.op("Max", norm, g.like(np.finfo(g.dtype(x)).tiny, x)))]


def celu(g: Graph, node: Node) -> Sequence[str]:
    x, alpha = node.inputs[0], float(node.get("alpha", 1.0))
    zero, width = g.like(0, x), g.like(alpha, x)
    curve = g.op("Sub", g.op("Exp", g.op("Div", g.op("Min", x, zero), width)), g.like(1, x))
    return [g.op("Add", g.op("Max", x, zero), g.op("Mul", width, curve))]


def space_to_depth(g: Graph, node: Node) -> Sequence[str] | None:
    if node.get("mode", "DCR") == "DCR":
        return None
    x, block = node.inputs[0], int(node.get("blocksize"))
    batch, channels, rows, columns = g.shape(x)
    high, wide = rows // block, columns // block
    cut = g.reshape(x, [batch, channels, high, block, wide, block])
    turned = g.op("Transpose", cut, perm=[0, 1, 3, 5, 2, 4])
    return [g.reshape(turned, [batch, channels * block * block, high, wide])]


def conv_transpose(g: Graph, node: Node) -> Sequence[str] | None:
    """`output_shape` and automatic padding as plain paddings."""
    wanted, auto = node.get("output_shape"), node.get("auto_pad", "NOTSET")
    if not wanted and auto in ("NOTSET", "VALID"):
        return None
    x, weight = g.shape(node.inputs[0]), g.shape(node.inputs[1])
    rank = len(x) - 2
    strides = list(node.get("strides") or [1] * rank)
    dilations = list(node.get("dilations") or [1] * rank)
    extra = list(node.get("output_padding") or [0] * rank)
    kernel = list(node.get("kernel_shape") or weight[2:])
    wanted = list(wanted or [n * s for n, s in zip(x[2:], strides, strict=True)])[-rank:]
    starts, ends = [], []
    for axis in range(rank):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        total = strides[axis] * (x[2 + axis] - 1) + extra[axis] + reach - wanted[axis]
        if total < 0:
            extra[axis] -= total
            total = 0
        first = total - total // 2 if auto != "SAME_UPPER" else total // 2
        starts.append(first)
        ends.append(total - first)
    dropped = ("output_shape", "auto_pad", "pads", "output_padding")
    attributes = {key: value for key, value in node.attributes.items() if key not in dropped}
    pads = starts + ends
    return [g.op("ConvTranspose", *node.inputs, **attributes, pads=pads, output_padding=extra)]


def depends_on_values(graph: Graph, node: Node) -> Sequence[str]:
    raise NetworkError(
        f"every shape must be known before it runs, but that of {node.op} {node.name!r} depends "
        "on values; export the network without it, up to its inputs"
    )


def shaped(graph: Graph, node: Node) -> Sequence[str] | None:
    place = node.input(_SHAPING[node.op])
    if place and graph.value(place) is None:
        raise graph.undecided(f"the shape that {node.op} makes", place)
    return None


def counted(graph: Graph, node: Node) -> Sequence[str]:
    open_ = next(name for name in node.inputs if graph.value(name) is None)
    raise graph.undecided("the length of a Range", open_)


# -- operators that onnxruntime writes into models it has optimised ---------------------------


def fused_matmul(g: Graph, node: Node) -> Sequence[str]:
    a, b = node.inputs
    for flag, which in (("transA", 0), ("transB", 1)):
        if node.get(flag, 0):
            x = (a, b)[which]
            rank = len(g.shape(x))
            turned = g.op("Transpose", x, perm=[*range(rank - 2), rank - 1, rank - 2])
            a, b = (turned, b) if which == 0 else (a, turned)
    product, alpha = g.op("MatMul", a, b), float(node.get("alpha", 1.0))
    return [product if alpha == 1 else g.op("Mul", product, g.like(alpha, product))]


def fused_conv(g: Graph, node: Node) -> Sequence[str]:
    own = ("activation", "activation_params")
    attributes = {key: value for key, value in node.attributes.items() if key not in own}
    y = g.op("Conv", *node.inputs[:3], **attributes)
    if node.input(3):
        y = g.op("Add", y, node.input(3))
    activation, parameters = node.get("activation"), list(node.get("activation_params") or [])
    if not activation:
        return [y]
    if activation == "Clip":
        return [g.op("Min", g.op("Max", y, g.like(parameters[0], y)), g.like(parameters[1], y))]
    named = dict(zip(("alpha", "beta"), parameters, strict=False))
    return [g.op(activation, y, **named)]


def gelu(g: Graph, node: Node) -> Sequence[str]:
    """Gelu and BiasGelu, by the error function."""
    x = node.inputs[0] if not node.input(1) else g.op("Add", node.inputs[0], node.input(1))
    inner = g.op("Erf", g.op("Mul", x, g.like(np.sqrt(0.5), x)))
    return [g.op("Mul", g.op("Mul", x, g.like(0.5, x)), g.op("Add", inner, g.like(1, x)))]


def fast_gelu(g: Graph, node: Node) -> Sequence[str]:
    x = node.inputs[0] if not node.input(1) else g.op("Add", node.inputs[0], node.input(1))
    cube = g.op("Mul", g.op("Mul", x, x), x)
    inner = g.op("Add", x, g.op("Mul", cube, g.like(0.044715, x)))
    curve = g.op("Tanh", g.op("Mul", inner, g.like(np.sqrt(2 / np.pi), x)))
    return [g.op("Mul", g.op("Mul", x, g.like(0.5, x)), g.op("Add", curve, g.like(1, x)))]


def quick_gelu(g: Graph, node: Node) -> Sequence[str]:
    x = node.inputs[0]
    scaled = g.op("Mul", x, g.like(float(node.get("alpha", 1.702)), x))
    return [g.op("Mul", x, g.op("Sigmoid", scaled))]


def skip_layer_norm(g: Graph, node: Node) -> Sequence[str]:
    x, skip, gamma, beta, bias = (node.input(i) for i in range(5))
    if any(node.used[1:3]):
        raise ValueError("its mean and deviation are read")
    total = g.op("Add", x, skip)
    total = g.op("Add", total, bias) if bias else total
    inputs = [gamma, beta] if beta else [gamma]
    epsilon = float(node.get("epsilon", 1e-12))
    normed = g.op("LayerNormalization", total, *inputs, axis=-1, epsilon=epsilon)
    return [normed, "", "", total][: node.outputs]


RULES: dict[Any, Any] = {
    ("", "Identity"): same,
    ("", "Dropout"): dropout,
    ("", "Shape"): shape,
    ("", "Size"): size,
    ("", "Cast"): cast,
    ("", "CastLike"): cast_like,
    ("", "LayerNormalization"): layer_norm,
    ("", "BatchNormalization"): batch_norm,
    ("", "Celu"): celu,
    ("", "EyeLike"): eye_like,
    ("", "OneHot"): one_hot,
    ("", "Pow"): power,
    ("", "IsInf"): is_inf,
    ("", "ReduceMax"): reduce_truth,
    ("", "ReduceMin"): reduce_truth,
    ("", "LpNormalization"): normalize,
    ("", "SpaceToDepth"): space_to_depth,
    ("", "ConvTranspose"): conv_transpose,
    ("", "Range"): counted,
    ("com.microsoft", "FusedMatMul"): fused_matmul,
    ("com.microsoft", "FusedConv"): fused_conv,
    ("com.microsoft", "Gelu"): gelu,
    ("com.microsoft", "BiasGelu"): gelu,
    ("com.microsoft", "FastGelu"): fast_gelu,
    ("com.microsoft", "QuickGelu"): quick_gelu,
    ("com.microsoft", "SkipLayerNormalization"): skip_layer_norm,
    **{("", op): by_definition for op in _BY_DEFINITION},
    **{("", op): depends_on_values for op in _BY_VALUE},
    **{("", op): shaped for op in _SHAPING},
}
