"""Ansor workload keys as canonical workloads.

A key is a JSON list: a function name with its arguments, or the hash of a compute graph with its
shapes. Names whose arguments are known become an operator with real shapes, so that one
convolution written three ways is one workload; the rest keep their key as attributes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tensorese.records.nouns import TensorSpec, Workload

_HASH_DIGITS = 32


def workload_of_key(key: str) -> Workload:
    name, *arguments = json.loads(key)
    described = _known(name, arguments)
    operator, shapes, attributes = described or _unknown(name, arguments)
    dtype = next((a for a in arguments if _is_dtype(a)), "")
    # Graph hashes cover the element type without telling it; the named functions are float32.
    dtype = dtype or ("float32" if described else "unknown")
    return Workload(
        operator=operator,
        args=tuple(TensorSpec(shape=tuple(shape), dtype=dtype) for shape in shapes),
        attributes=attributes,
        source="ansor",
        key=key,
    )


_Described: TypeAlias = tuple[str, Sequence[Sequence[int]], dict[str, Any]]


def _is_dtype(value: Any) -> bool:
    return isinstance(value, str) and value.rstrip("0123456789") in (
        "float",
        "int",
        "uint",
        "bfloat",
    )


def _known(name: str, arguments: list[Any]) -> _Described | None:
    """None when the arguments are not those of the function known by that name."""
    try:
        described = _KNOWN[name](*arguments)
    except (KeyError, TypeError, ValueError):
        return None
    plain = all(type(extent) is int for shape in described[1] for extent in shape)
    return described if plain else None


def _unknown(name: str, arguments: list[Any]) -> _Described:
    shapes = [a for a in arguments if isinstance(a, list) and all(type(n) is int for n in a)]
    rest = [a for a in arguments if a not in shapes]
    is_hash = len(name) == _HASH_DIGITS and all(c in "0123456789abcdef" for c in name)
    if is_hash:
        return "subgraph", shapes, {"dag": name, **({"shape": rest} if rest else {})}
    return name, shapes, {"arguments": rest} if rest else {}


def pads(padding: Any, kernel: Sequence[int]) -> list[int]:
    """`[top, left, bottom, right]` of SAME, VALID, an integer or a pair.

    SAME is TOPI's rule, which these logs were compiled by: kernel - 1 in all whatever the stride,
    the larger half in front.
    """
    if padding == "VALID":
        return [0, 0, 0, 0]
    if padding == "SAME":
        front = [k // 2 for k in kernel]
        return [*front, *(k - 1 - f for k, f in zip(kernel, front, strict=True))]
    height, width = padding if isinstance(padding, list) else (padding, padding)
    return [height, width, height, width]


def _window(
    size: Sequence[int], kernel: Sequence[int], stride: Any, padding: Any
) -> tuple[list[int], dict[str, Any]]:
    """Output height and width, and the attributes of a sliding window."""
    strides = stride if isinstance(stride, list) else [stride, stride]
    around = pads(padding, kernel)
    out = [
        (size[axis] + around[axis] + around[axis + 2] - kernel[axis]) // strides[axis] + 1
        for axis in (0, 1)
    ]
    return out, {"layout": "NCHW", "stride": strides, "padding": around}


def _conv2d(
    n: int, a: int, b: int, c: int, co: int, kh: int, kw: int, stride: Any, padding: Any
) -> _Described:
    if isinstance(stride, list):
        # TVM's tutorial: N, H, W, CO, CI, … with a bias and a ReLU behind.
        h, w, co, ci = a, b, c, co
        operator, bias = "conv2d_bias_relu", [[1, co, 1, 1]]
    else:
        ci, h, w = a, b, c
        operator, bias = "conv2d", []
    out, attributes = _window([h, w], [kh, kw], stride, padding)
    return operator, [[n, ci, h, w], [co, ci, kh, kw], *bias, [n, co, *out]], attributes


def _depthwise(
    n: int, c: int, h: int, w: int, kh: int, kw: int, stride: Any, padding: Any
) -> _Described:
    out, attributes = _window([h, w], [kh, kw], stride, padding)
    return "depthwise_conv2d", [[n, c, h, w], [c, 1, kh, kw], [n, c, *out]], attributes


def _pool(
    mode: str, n: int, c: int, h: int, w: int, kh: int, kw: int, stride: Any, padding: Any
) -> _Described:
    out, attributes = _window([h, w], [kh, kw], stride, padding)
    shapes = [[n, c, h, w], [n, c, *out]]
    return f"{mode}_pool2d", shapes, {**attributes, "kernel": [kh, kw]}


def _matmul(m: int, k: int, n: int, dtype: str = "float32") -> _Described:
    if not _is_dtype(dtype):
        raise TypeError
    return "matmul", [[m, k], [k, n], [m, n]], {}


def _matmul_add(m: int, k: int, n: int, dtype: str) -> _Described:
    return "matmul_add", [[m, k], [k, n], [m, n], [m, n]], {}


def _batch_matmul(b: int, heads: int, m: int, k: int, n: int) -> _Described:
    batch = b * heads
    return "batch_matmul", [[batch, m, k], [batch, k, n], [batch, m, n]], {}


def _reduction(shape: list[int], axis: int, keepdims: bool) -> _Described:
    out = [1 if i == axis else n for i, n in enumerate(shape) if keepdims or i != axis]
    return "reduce_sum", [shape, out], {"axis": axis, "keepdims": keepdims}


def _relu(*shape: Any) -> _Described:
    dims = [n for n in shape if isinstance(n, int)]
    return "relu", [dims, dims], {}


_KNOWN: dict[str, Callable[..., _Described]] = {
    "conv2d_layer": _conv2d,
    "depthwise_conv2d_layer": _depthwise,
    "pool_layer": _pool,
    "matmul_layer": _matmul,
    "ansor_mm": _matmul,
    "matmul_add": _matmul_add,
    "batch_matmul_layer": _batch_matmul,
    "reduction_layer": _reduction,
    "relu_layer": _relu,
    "ansor_relu": _relu,
}
