"""One block at a time: spatial stores, reductions as matrix products, anything else in order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorese.measure.reference.expressions import (
    Array,
    Box,
    Expressions,
    Unsupported,
    children,
    np_dtype,
)

# Elements a single step may hold per array: 2^23 float64 are 64 MiB, and a step holds a handful
# of such arrays, so evaluation stays near 512 MiB above the program's own buffers.
MAX_ELEMENTS = 1 << 23
MAX_GROUPS = 64
MAX_ORDERED_STEPS = 200_000
_DATA_PARALLEL, _REDUCE = 0, 2  # tvm.tirx.IterVar iter_type
_REDUCERS: dict[str, Any] = {
    "Add": np.add,
    "Mul": np.multiply,
    "Max": np.maximum,
    "Min": np.minimum,
    "And": np.logical_and,
    "Or": np.logical_or,
}


@dataclass(frozen=True, kw_only=True)
class Block:
    """A leaf SBlock: what it iterates over and what it does at each point."""

    name: str
    variables: tuple[Any, ...]
    box: Box
    reduce_axes: tuple[int, ...]
    init: Any
    body: Any

    @staticmethod
    def of(block: Any) -> Block:
        kinds = [int(v.iter_type) for v in block.iter_vars]
        if any(kind not in (_DATA_PARALLEL, _REDUCE) for kind in kinds):
            raise Unsupported(f"an ordered or opaque axis in block {block.name_hint}")
        if block.match_buffers:
            raise Unsupported(f"a matched buffer in block {block.name_hint}")
        return Block(
            name=block.name_hint,
            variables=tuple(v.var for v in block.iter_vars),
            box=tuple(_bounds(v.dom) for v in block.iter_vars),
            reduce_axes=tuple(axis for axis, kind in enumerate(kinds) if kind == _REDUCE),
            init=block.init,
            body=block.body,
        )

    @property
    def spatial_box(self) -> Box:
        """The box at the first reduction point."""
        return self.pinned(self.box, tuple(self.box[axis][0] for axis in self.reduce_axes))

    def pinned(self, box: Box, point: tuple[int, ...]) -> Box:
        fixed = dict(zip(self.reduce_axes, point, strict=True))
        return tuple((fixed[k], fixed[k] + 1) if k in fixed else b for k, b in enumerate(box))


def _bounds(domain: Any) -> tuple[int, int]:
    start, extent = int_of(domain.min), int_of(domain.extent)
    return start, start + extent


def int_of(node: Any) -> int:
    if type(node).__name__ == "IntImm":
        return int(node.value)
    if isinstance(node, int):
        return node
    raise Unsupported(f"a symbolic extent {node}")


def run_block(block: Block, buffers: dict[Any, Array]) -> None:
    """Executes the block, writing into `buffers` (which hold every buffer it touches)."""
    if not block.reduce_axes:
        _run_spatial(block, buffers)
        return
    source = _reduction_source(block.body)
    if source is None:
        _run_ordered(block, buffers)
    else:
        _run_reduction(block, buffers, source)


def boxes(box: Box, cost: Callable[[Box], int]) -> Iterator[Box]:
    """Halves the longest axis until every part costs at most `MAX_ELEMENTS`."""
    axis = max(range(len(box)), key=lambda k: box[k][1] - box[k][0], default=-1)
    if axis < 0 or cost(box) <= MAX_ELEMENTS or box[axis][1] - box[axis][0] == 1:
        yield box
        return
    start, stop = box[axis]
    for half in ((start, (start + stop) // 2), ((start + stop) // 2, stop)):
        yield from boxes((*box[:axis], half, *box[axis + 1 :]), cost)


def _volume(box: Box) -> int:
    return math.prod(stop - start for start, stop in box)


def _run_spatial(block: Block, buffers: dict[Any, Array]) -> None:
    body = block.body
    if type(body).__name__ == "BufferStore" and _reads(body.value, body.buffer):
        raise Unsupported(f"block {block.name}, which updates {body.buffer.name} in place")
    for box in boxes(block.box, _volume):
        _execute(body, Expressions(buffers, block.variables, box))


def _reads(node: Any, buffer: Any) -> bool:
    if type(node).__name__ == "TensorLoad" and node.source.same_as(buffer):
        return True
    return any(_reads(child, buffer) for child in children(node))


def _execute(statement: Any, evaluate: Expressions) -> None:
    kind = type(statement).__name__
    if kind == "SeqStmt":
        for part in statement.seq:
            _execute(part, evaluate)
    elif kind == "Bind":
        # A copy: the value may be a view of what the next statement overwrites.
        evaluate.values[statement.var] = evaluate(statement.value).copy()
    elif kind == "BufferStore":
        target = evaluate.buffers[statement.buffer]
        evaluate.store(target, statement.indices, evaluate(statement.value))
    else:
        raise Unsupported(f"statement {kind} inside a block")


def _run_ordered(block: Block, buffers: dict[Any, Array]) -> None:
    """Reductions without a known shape (argmax): step by step, all spatial points at once."""
    spans = [range(*block.box[axis]) for axis in block.reduce_axes]
    if math.prod(map(len, spans)) > MAX_ORDERED_STEPS:
        raise Unsupported(f"block {block.name}, too long a reduction to take step by step")
    for spatial in boxes(block.spatial_box, _volume):
        if block.init is not None:
            _execute(block.init, Expressions(buffers, block.variables, spatial))
        for offset in np.ndindex(*map(len, spans)):
            point = tuple(span[k] for span, k in zip(spans, offset, strict=True))
            _execute(
                block.body, Expressions(buffers, block.variables, block.pinned(spatial, point))
            )


def _reduction_source(body: Any) -> Any:
    """`x` in `C[i] = C[i] + x` (or max, min, ...); None for any other body."""
    if type(body).__name__ != "BufferStore" or type(body.value).__name__ not in _REDUCERS:
        return None
    target = [str(index) for index in body.indices]
    for own, other in ((body.value.a, body.value.b), (body.value.b, body.value.a)):
        if type(own).__name__ == "TensorLoad" and own.source.same_as(body.buffer):
            same = [str(index) for index in own.indices] == target
            return other if same and not _reads(other, body.buffer) else None
    return None


def _run_reduction(block: Block, buffers: dict[Any, Array], source: Any) -> None:
    """Accumulates in float64 (int64 for integers), rounding once, at the end."""
    body, reducer = block.body, _REDUCERS[type(block.body.value).__name__]
    dtype = np_dtype(str(body.value.ty))
    at_start = Expressions(buffers, block.variables, block.spatial_box)
    if block.init is not None:
        _execute(block.init, at_start)
    total = np.empty(at_start.shape, _wide(dtype))
    total[...] = at_start.load(buffers[body.buffer], body.indices)
    factors = _factors(source) if reducer is np.add else [source]
    if len(factors) > 1 and dtype.kind in "iu" and not _exact(block, buffers, factors):
        factors = [source]

    def cost(box: Box) -> int:
        if len(factors) == 1:
            return _volume(box)
        held = [_used_axes(factor, block, box) for factor in factors]
        held.append(set(range(len(box))) - set(block.reduce_axes))
        return sum(_volume(tuple(box[k] for k in axes)) for axes in held)

    wide: dict[Any, Array] = {}
    for part in _group_boxes(block, source):
        for box in boxes(part, cost):
            evaluate = Expressions(buffers, block.variables, box)
            if len(factors) > 1:
                arrays = [_widened(evaluate, factor, wide) for factor in factors]
                value = contract(arrays, block.reduce_axes, evaluate.shape)
            else:
                full = _expand(evaluate(source), block.reduce_axes, evaluate.shape)
                value = reducer.reduce(full, block.reduce_axes, dtype=total.dtype, keepdims=True)
            span = tuple(
                slice(0, 1) if k in block.reduce_axes else slice(a - first, b - first)
                for k, ((a, b), (first, _)) in enumerate(zip(box, block.box, strict=True))
            )
            if total.dtype.kind == "i":
                value = np.rint(value).astype(np.int64) if value.dtype.kind == "f" else value
            total[span] = reducer(total[span], value)
    at_start.store(buffers[body.buffer], body.indices, total.astype(dtype))


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


def _exact(block: Block, buffers: dict[Any, Array], factors: list[Any]) -> bool:
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


def _used_axes(node: Any, block: Block, box: Box) -> set[int]:
    if type(node).__name__ == "Var":
        return {k for k, v in enumerate(block.variables) if v.same_as(node)}
    divided = _divided_axis(node, block)
    if divided is not None:
        axis, divisor = divided
        start, stop = box[axis]
        return set() if start // divisor == (stop - 1) // divisor else {axis}
    return set().union(*(_used_axes(child, block, box) for child in children(node)))


def _divided_axis(node: Any, block: Block) -> tuple[int, int] | None:
    """(axis, divisor) of `v // c`, the mark of a grouped operator."""
    if type(node).__name__ != "FloorDiv" or type(node.b).__name__ != "IntImm":
        return None
    for axis, variable in enumerate(block.variables):
        if variable.same_as(node.a):
            return axis, int(node.b.value)
    return None


def _group_boxes(block: Block, node: Any) -> Iterator[Box]:
    """Cuts the box where `v // c` steps, so that inside each part the indices are affine."""
    divided = _find_division(node, block)
    if divided is None:
        yield block.box
        return
    axis, divisor = divided
    start, stop = block.box[axis]
    cuts = [start, *range((start // divisor + 1) * divisor, stop, divisor), stop]
    for bounds in itertools.pairwise(cuts):
        yield (*block.box[:axis], bounds, *block.box[axis + 1 :])


def _find_division(node: Any, block: Block) -> tuple[int, int] | None:
    found = _divided_axis(node, block)
    if found is not None:
        start, stop = block.box[found[0]]
        return found if 1 < (stop - start) / found[1] <= MAX_GROUPS else None
    for child in children(node):
        found = _find_division(child, block)
        if found is not None:
            return found
    return None


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
