"""Blocks: their iteration box, cut to fit memory, and the plain ways to execute one."""

from __future__ import annotations

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
)

# Elements a single step may hold per array: 2^23 float64 are 64 MiB, and a step holds a handful
# of such arrays, so evaluation stays near 512 MiB above the program's own buffers.
MAX_ELEMENTS = 1 << 23
MAX_ORDERED_STEPS = 200_000
_DATA_PARALLEL, _REDUCE = 0, 2  # tvm.tirx.IterVar iter_type


@dataclass(frozen=True, kw_only=True)
class LeafBlock:
    """A leaf SBlock: what it iterates over and what it does at each point."""

    name: str
    variables: tuple[Any, ...]
    box: Box
    reduce_axes: tuple[int, ...]
    init: Any
    body: Any

    @staticmethod
    def of(block: Any) -> LeafBlock:
        kinds = [int(v.iter_type) for v in block.iter_vars]
        if any(kind not in (_DATA_PARALLEL, _REDUCE) for kind in kinds):
            raise Unsupported(f"an ordered or opaque axis in block {block.name_hint}")
        if block.match_buffers:
            raise Unsupported(f"a matched buffer in block {block.name_hint}")
        return LeafBlock(
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


def boxes(box: Box, cost: Callable[[Box], int]) -> Iterator[Box]:
    """Halves the longest axis until every part costs at most `MAX_ELEMENTS`."""
    axis = max(range(len(box)), key=lambda k: box[k][1] - box[k][0], default=-1)
    if axis < 0 or cost(box) <= MAX_ELEMENTS or box[axis][1] - box[axis][0] == 1:
        yield box
        return
    start, stop = box[axis]
    for half in ((start, (start + stop) // 2), ((start + stop) // 2, stop)):
        yield from boxes((*box[:axis], half, *box[axis + 1 :]), cost)


def volume(box: Box) -> int:
    return math.prod(stop - start for start, stop in box)


def run_spatial(block: LeafBlock, buffers: dict[Any, Array]) -> None:
    body = block.body
    if type(body).__name__ == "BufferStore" and reads(body.value, body.buffer):
        raise Unsupported(f"block {block.name}, which updates {body.buffer.name} in place")
    for box in boxes(block.box, volume):
        execute(body, Expressions(buffers, block.variables, box))


def reads(node: Any, buffer: Any) -> bool:
    if type(node).__name__ == "TensorLoad" and node.source.same_as(buffer):
        return True
    return any(reads(child, buffer) for child in children(node))


def execute(statement: Any, evaluate: Expressions) -> None:
    kind = type(statement).__name__
    if kind == "SeqStmt":
        for part in statement.seq:
            execute(part, evaluate)
    elif kind == "Bind":
        # A copy: the value may be a view of what the next statement overwrites.
        evaluate.values[statement.var] = evaluate(statement.value).copy()
    elif kind == "BufferStore":
        target = evaluate.buffers[statement.buffer]
        evaluate.store(target, statement.indices, evaluate(statement.value))
    else:
        raise Unsupported(f"statement {kind} inside a block")


def run_ordered(block: LeafBlock, buffers: dict[Any, Array]) -> None:
    """Reductions without a known shape (argmax): step by step, all spatial points at once."""
    spans = [range(*block.box[axis]) for axis in block.reduce_axes]
    if math.prod(map(len, spans)) > MAX_ORDERED_STEPS:
        raise Unsupported(f"block {block.name}, too long a reduction to take step by step")
    for spatial in boxes(block.spatial_box, volume):
        if block.init is not None:
            execute(block.init, Expressions(buffers, block.variables, spatial))
        for offset in np.ndindex(*map(len, spans)):
            point = tuple(span[k] for span, k in zip(spans, offset, strict=True))
            execute(block.body, Expressions(buffers, block.variables, block.pinned(spatial, point)))
