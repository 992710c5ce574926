"""The two transforms around Winograd's products: what they compute, and how they are scheduled.

    V[ij, p]  = (B^T d_p B)[i, j]        d_p: the t x t window of tile p, t = m + 2
    M[ij, p]  = V[ij, p] @ U[ij]         a batch of t*t products, tuned like any other
    Y_p       = A^T M[:, p] A            m x m outputs, bias and activation fused behind

Both transforms are sums with constant factors, one axis after the other. Nothing is searched:
a window's t x t vectors of channels stay in registers, and every factor is a literal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorese.tvm_env import import_tvm
from tensorese.workloads.operators import nodes_of

MARK = "tensorese.winograd"
"""Annotation of a transform's first block; its value is the tile, m."""

_LANES = (16, 8)
_INPUT = {
    2: [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
    4: [
        *([4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0]),
        *([0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1]),
    ],
}
_WEIGHT = {
    2: [[1, 0, 0], [1 / 2, 1 / 2, 1 / 2], [1 / 2, -1 / 2, 1 / 2], [0, 0, 1]],
    4: [
        *([1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6]),
        *([1 / 24, 1 / 12, 1 / 6], [1 / 24, -1 / 12, 1 / 6], [0, 0, 1]),
    ],
}
_OUTPUT = {
    2: [[1, 1, 1, 0], [0, 1, -1, -1]],
    4: [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
}
TILES = tuple(_INPUT)


def tiles(extent: int, m: int) -> int:
    return -(-extent // m)


def transformed_weight(weight: Any, m: int) -> Any:
    """HWIO to [t*t, I, O], in double precision."""
    g = np.array(_WEIGHT[m], "float64")
    u = np.einsum("ih,jw,hwco->ijco", g, g, weight.astype("float64"))
    return u.reshape(-1, *u.shape[2:])


def _combined(factors: list[list[int]], index: Any, term: Any) -> Any:
    """sum over k of factors[index][k] * term(k), where `index` is a loop to be unrolled."""
    tvm = import_tvm()
    rows = [
        sum((f * term(k) if f != 1 else term(k) for k, f in enumerate(row) if f), start=0)
        for row in factors
    ]
    chosen = rows[-1]
    for i in reversed(range(len(rows) - 1)):
        chosen = tvm.tirx.if_then_else(index == i, rows[i], chosen)
    return chosen


def input_transform(x: Any, m: int, out: tuple[int, int], padding: tuple[int, int]) -> Any:
    """x[N, H, W, C] to V[t*t, P, C]."""
    tvm = import_tvm()
    te, t = tvm.te, m + 2
    batch, height, width, channels = (int(extent) for extent in x.shape)
    down, across = tiles(out[0], m), tiles(out[1], m)
    factors = _INPUT[m]

    def pixel(p: Any, k: Any, q: Any, c: Any) -> Any:
        n, y, z = p // (down * across), p // across % down, p % across
        row, column = y * m + k - padding[0], z * m + q - padding[1]
        inside = tvm.tirx.all(row >= 0, row < height, column >= 0, column < width)
        return tvm.tirx.if_then_else(inside, x[n, row, column, c], tvm.tirx.const(0.0, x.dtype))

    points = batch * down * across
    half = te.compute(
        (points, t, t, channels),
        lambda p, k, j, c: _combined(factors, j, lambda q: pixel(p, k, q, c)),
        name="winograd_rows",
        attrs={MARK: m},
    )
    return te.compute(
        (t * t, points, channels),
        lambda ij, p, c: _combined(factors, ij // t, lambda k: half[p, k, ij % t, c]),
        name="winograd_input",
    )


def output_transform(products: Any, m: int, shape: tuple[int, int, int, int]) -> Any:
    """M[t*t, P, O] to Y[N, H, W, O]."""
    te, t = import_tvm().te, m + 2
    _, height, width, channels = shape
    down, across = tiles(height, m), tiles(width, m)
    factors = _OUTPUT[m]
    half = te.compute(
        (int(products.shape[1]), t, m, channels),
        lambda p, i, b, c: _combined(factors, b, lambda j: products[i * t + j, p, c]),
        name="winograd_columns",
        attrs={MARK: m},
    )

    def pixel(n: Any, h: Any, w: Any, c: Any) -> Any:
        p = (n * down + h // m) * across + w // m
        return _combined(factors, h % m, lambda i: half[p, i, w % m, c])

    return te.compute(shape, pixel, name="winograd_output")


# -- schedules --------------------------------------------------------------------------------


def is_transform(module: Any) -> bool:
    return _first_block(module["main"]) is not None


def _first_block(function: Any) -> Any:
    """The marked block of a function, or None."""
    for node in nodes_of(function.body):
        if type(node).__name__ == "SBlock" and MARK in (node.annotations or {}):
            return node
    return None


def transform_schedule(module: Any) -> Any:
    """A transform with whatever was fused behind it, scheduled."""
    tvm = import_tvm()
    marked = _first_block(module["main"])
    m = int(marked.annotations[MARK])
    schedule = tvm.s_tir.Schedule(module)
    first = schedule.get_sblock(str(marked.name_hint))
    last = _inline_between(schedule, first)
    channels = schedule.get_loops(last)[-1]
    extent = int(schedule.get(channels).extent)
    lanes = next((n for n in _LANES if extent % n == 0), 1)
    outer, inner = schedule.split(channels, [extent // lanes, lanes])
    if str(marked.name_hint).startswith("winograd_rows"):
        many, point, *_ = schedule.get_loops(last)
        schedule.reorder(point, outer, many, inner)
        shared, unrolled = [point, outer], [many]
    else:
        n, h, w, *_ = schedule.get_loops(last)
        th, a = schedule.split(h, [None, m])
        tw, b = schedule.split(w, [None, m])
        schedule.reorder(n, th, tw, outer, a, b, inner)
        shared, unrolled = [n, th, tw, outer], [a, b]
    schedule.compute_at(first, outer)
    own = schedule.get_loops(first)[len(shared) :]
    schedule.unannotate(first, MARK)
    for loop in [*own[:-1], *unrolled]:
        schedule.unroll(loop)
    schedule.vectorize(own[-1])
    schedule.vectorize(inner)
    schedule.parallel(schedule.fuse(*shared))
    return schedule.mod


def _inline_between(schedule: Any, first: Any) -> Any:
    """All but the first and the last block, into the last; returns it."""
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    last = schedule.get_output_blocks("root")[0]
    names = {str(schedule.get(block).name_hint) for block in (first, last)}
    for block in blocks:
        if str(schedule.get(block).name_hint) not in names:
            schedule.compute_inline(block)
    return last
