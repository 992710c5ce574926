"""Sums of products as batched matrix products."""

from __future__ import annotations

import math

import numpy as np

from tensorese.measure.reference.expressions import Array


def contract(arrays: list[Array], reduce_axes: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """Sum of products over `reduce_axes` of broadcastable arrays, as one batched matmul.

    einsum leaves BLAS when a batch axis is shared (attention, depthwise), hence our own.
    """
    arrays = [a.reshape((1,) * (len(shape) - a.ndim) + a.shape) for a in arrays]
    left, *rest = sorted(arrays, key=lambda a: -a.size)
    right = rest[0]
    for extra in rest[1:]:
        right = right * extra
    scale = 1
    batch: list[int] = []
    rows: list[int] = []
    columns: list[int] = []
    inner: list[int] = []
    for axis, extent in enumerate(shape):
        in_left, in_right = left.shape[axis] > 1, right.shape[axis] > 1
        if axis not in reduce_axes:
            groups = {(True, True): batch, (True, False): rows, (False, True): columns}
            groups.get((in_left, in_right), []).append(axis)
        elif in_left and in_right:
            inner.append(axis)
        elif in_left:
            left = left.sum(axis, keepdims=True)
        elif in_right:
            right = right.sum(axis, keepdims=True)
        else:
            scale *= extent
    product = _matrices(left, batch, rows, inner) @ _matrices(right, batch, inner, columns)
    order = [*batch, *rows, *columns]
    named = product.reshape([shape[k] for k in order])
    dims = [shape[k] if k in order else 1 for k in range(len(shape))]
    return np.asarray(scale * named.transpose(np.argsort(order)).reshape(dims))


def _matrices(array: Array, *groups: list[int]) -> Array:
    """`array` as [batch, rows, columns]; its other axes have extent 1."""
    order = [axis for group in groups for axis in group]
    rest = [axis for axis in range(array.ndim) if axis not in order]
    sizes = [math.prod(array.shape[k] for k in group) for group in groups]
    return array.transpose(order + rest).reshape(sizes)
