"""Reductions: sums of products as matrix products in float64, others folded box by box."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tensorese.measure.reference.blocks import (
    LeafBlock,
    boxes,
    execute,
    reads,
    run_ordered,
    run_spatial,
    volume,
)
from tensorese.measure.reference.contraction import contract
from tensorese.measure.reference.expressions import Array, Box, Expressions, children, np_dtype

MAX_GROUPS = 64
_REDUCERS: dict[str, Any] = {
    "Add": np.add,
    "Mul": np.multiply,
    "Max": np.maximum,
    "Min": np.minimum,
    "And": np.logical_and,
    "Or": np.logical_or,
}


def run_block(block: LeafBlock, buffers: dict[Any, Array]) -> None:
    """Executes the block, writing into `buffers` (which hold every buffer it touches)."""
    if not block.reduce_axes:
        run_spatial(block, buffers)
        return
    source = _source(block.body)
    if source is None:
        run_ordered(block, buffers)
    else:
        _reduce(block, buffers, source)


def _source(body: Any) -> Any:
    """`x` in `C[i] = C[i] + x` (or max, min, ...); None for any other body."""
    if type(body).__name__ != "BufferStore" or type(body.value).__name__ not in _REDUCERS:
        return None
    target = [str(index) for index in body.indices]
    for own, other in ((body.value.a, body.value.b), (body.value.b, body.value.a)):
        if type(own).__name__ == "TensorLoad" and own.source.same_as(body.buffer):
            same = [str(index) for index in own.indices] == target
            return other if same and not reads(other, body.buffer) else None
    return None


def _reduce(block: LeafBlock, buffers: dict[Any, Array], source: Any) -> None:
    """Accumulates in float64 (int64 for integers), rounding once, at the end."""
    body, reducer = block.body, _REDUCERS[type(block.body.value).__name__]
    dtype = np_dtype(str(body.value.ty))
    at_start = Expressions(buffers, block.variables, block.spatial_box)
    if block.init is not None:
        execute(block.init, at_start)
    total = np.empty(at_start.shape, _wide(dtype))
    total[...] = at_start.load(buffers[body.buffer], body.indices)
    factors = _factors(source) if reducer is np.add else [source]
    if len(factors) > 1 and dtype.kind in "iu" and not _exact(block, buffers, factors):
        factors = [source]
    wide: dict[Any, Array] = {}
    for box in _boxes(block, factors):
        evaluate = Expressions(buffers, block.variables, box)
        if len(factors) > 1:
            arrays = [_widened(evaluate, factor, wide) for factor in factors]
            value = contract(arrays, block.reduce_axes, evaluate.shape)
        else:
            full = _expand(evaluate(source), block.reduce_axes, evaluate.shape)
            value = reducer.reduce(full, block.reduce_axes, dtype=total.dtype, keepdims=True)
        if total.dtype.kind == "i" and value.dtype.kind == "f":
            value = np.rint(value).astype(np.int64)
        part = _slices(block, box)
        total[part] = reducer(total[part], value)
    at_start.store(buffers[body.buffer], body.indices, total.astype(dtype))


def _boxes(block: LeafBlock, factors: list[Any]) -> Iterator[Box]:
    def cost(box: Box) -> int:
        if len(factors) == 1:
            return volume(box)
        held = [_used_axes(factor, block, box) for factor in factors]
        held.append(set(range(len(box))) - set(block.reduce_axes))
        return sum(volume(tuple(box[k] for k in axes)) for axes in held)

    for part in _group_boxes(block, factors):
        yield from boxes(part, cost)


def _slices(block: LeafBlock, box: Box) -> tuple[slice, ...]:
    """Where the box lies in an array over the block's spatial points."""
    return tuple(
        slice(0, 1) if k in block.reduce_axes else slice(start - first, stop - first)
        for k, ((start, stop), (first, _)) in enumerate(zip(box, block.box, strict=True))
    )


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind == "b":
        return dtype
    return np.dtype(np.int64 if dtype.kind in "iu" else np.float64)


def _expand(value: Array, axes: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """Repeats a value (for free) along reduction axes it does not depend on."""
    value = value.reshape((1,) * (len(shape) - value.ndim) + value.shape)
    full = [n if k in axes else value.shape[k] for k, n in enumerate(shape)]
    return np.broadcast_to(value, full)


def _factors(node: Any) -> list[Any]:
    if type(node).__name__ == "Mul":
        return _factors(node.a) + _factors(node.b)
    return [node]


def _exact(block: LeafBlock, buffers: dict[Any, Array], factors: list[Any]) -> bool:
    """Whether an integer sum of products cannot leave float64's exact integers."""
    length = math.prod(block.box[k][1] - block.box[k][0] for k in block.reduce_axes)
    bound = float(length)
    for factor in factors:
        load = _bare_load(factor)
        if load is None:
            return False
        bound *= float(np.abs(buffers[load.source].astype(np.float64)).max())
    return bound < 2.0**53


def _bare_load(node: Any) -> Any:
    """The load inside value-preserving casts, else None."""
    while type(node).__name__ == "Cast":
        inner, outer = np_dtype(str(node.value.ty)), np_dtype(str(node.ty))
        # kind V is ml_dtypes' bfloat16 and float8, all narrower than float32
        kinds = {"V": "f"}.get(inner.kind, inner.kind), outer.kind
        if kinds[0] != kinds[1] or inner.itemsize > outer.itemsize:
            return None
        node = node.value
    return node if type(node).__name__ == "TensorLoad" else None


def _widened(evaluate: Expressions, factor: Any, wide: dict[Any, Array]) -> Array:
    """The factor in float64; a plain load is a view of the buffer, widened once."""
    load = _bare_load(factor)
    if load is None:
        return evaluate(factor).astype(np.float64)
    if load.source not in wide:
        wide[load.source] = evaluate.buffers[load.source].astype(np.float64)
    return evaluate.load(wide[load.source], load.indices)


def _used_axes(node: Any, block: LeafBlock, box: Box) -> set[int]:
    if type(node).__name__ == "Var":
        return {k for k, v in enumerate(block.variables) if v.same_as(node)}
    divided = _divided_axis(node, block)
    if divided is not None:
        axis, divisor = divided
        start, stop = box[axis]
        return set() if start // divisor == (stop - 1) // divisor else {axis}
    return set().union(*(_used_axes(child, block, box) for child in children(node)))


def _divided_axis(node: Any, block: LeafBlock) -> tuple[int, int] | None:
    """(axis, divisor) of `v // c`, the mark of a grouped operator."""
    if type(node).__name__ != "FloorDiv" or type(node.b).__name__ != "IntImm":
        return None
    for axis, variable in enumerate(block.variables):
        if variable.same_as(node.a):
            return axis, int(node.b.value)
    return None


def _group_boxes(block: LeafBlock, factors: list[Any]) -> Iterator[Box]:
    """Cuts the box where `v // c` steps, so that inside each part the indices are affine."""
    divisions = (_find_division(factor, block) for factor in factors)
    divided = next((division for division in divisions if division is not None), None)
    if divided is None:
        yield block.box
        return
    axis, divisor = divided
    start, stop = block.box[axis]
    cuts = [start, *range((start // divisor + 1) * divisor, stop, divisor), stop]
    for bounds in itertools.pairwise(cuts):
        yield (*block.box[:axis], bounds, *block.box[axis + 1 :])


def _find_division(node: Any, block: LeafBlock) -> tuple[int, int] | None:
    division = _divided_axis(node, block)
    if division is not None:
        start, stop = block.box[division[0]]
        return division if 1 < (stop - start) / division[1] <= MAX_GROUPS else None
    for child in children(node):
        division = _find_division(child, block)
        if division is not None:
            return division
    return None
