"""What a task computes, read from its TIR: `conv2d`, `dense`, `softmax`, ..., never its name.

Names come from the front end that made the graph; the loops and accesses do not lie.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_REDUCE = 2  # tvm.tirx.IterVar iter_type
# Where TIR nodes keep others, in program order; nodes are distinguished by class name.
_ONE = (
    *("block", "condition", "then_case", "else_case"),
    *("a", "b", "value", "true_value", "false_value", "body"),
)
_MANY = ("seq", "indices", "args")


@dataclass(frozen=True, kw_only=True)
class _Block:
    """A leaf block: its axes by kind, and every node of its body."""

    spatial: dict[Any, int]
    """Variable to extent."""
    reduced: dict[Any, int]
    stores: list[Any]
    nodes: list[Any]

    @property
    def points(self) -> int:
        return math.prod([*self.spatial.values(), *self.reduced.values()])

    def kinds(self) -> set[str]:
        """Class names of the nodes, and `tirx.exp` and the like for calls."""
        calls = (getattr(n.op, "name", "") for n in self.nodes if type(n).__name__ == "Call")
        return {type(node).__name__ for node in self.nodes} | set(calls)


def operator_class(module: Any) -> str:
    """The class of an unscheduled module with one function, `main`; a fusion's is its anchor's."""
    blocks = list(_leaf_blocks(module["main"].body))
    reductions = [block for block in blocks if block.reduced]
    products = [(block, pair) for block in reductions if (pair := _product(block))]
    if products:
        block, (left, right) = max(products, key=lambda product: product[0].points)
        return _contraction(block, left, right, blocks)
    kinds = set[str]().union(*(block.kinds() for block in blocks))
    if reductions:
        return _reduction(reductions, kinds)
    if any(_gathers(block) for block in blocks):
        return "gather"
    return "elementwise" if any(_computes(block) for block in blocks) else "copy"


def nodes_of(node: Any) -> Iterator[Any]:
    """A statement or expression and all inside it, in program order."""
    yield node
    for field in _ONE:
        child = getattr(node, field, None)
        if child is not None and not isinstance(child, bool | int | float | str):
            yield from nodes_of(child)
    for field in _MANY:
        for child in getattr(node, field, ()):
            yield from nodes_of(child)


def _leaf_blocks(body: Any) -> Iterator[_Block]:
    for block in (node for node in nodes_of(body) if type(node).__name__ == "SBlock"):
        nodes = list(nodes_of(block.body))
        if any(type(node).__name__ == "SBlock" for node in nodes):
            continue  # the root, or a block of blocks
        axes = [(v.var, _extent(v.dom.extent), int(v.iter_type)) for v in block.iter_vars]
        yield _Block(
            spatial={var: extent for var, extent, kind in axes if kind != _REDUCE},
            reduced={var: extent for var, extent, kind in axes if kind == _REDUCE},
            stores=[node for node in nodes if type(node).__name__ == "BufferStore"],
            nodes=nodes,
        )


def _extent(value: Any) -> int:
    """1 for one that depends on where it is: windows of a pool that does not divide its input."""
    return int(value) if type(value).__name__ == "IntImm" else 1


def _peel(node: Any) -> Any:
    """Through conversions of type."""
    while type(node).__name__ == "Cast":
        node = node.value
    return node


def _product(block: _Block) -> tuple[Any, Any] | None:
    """The two loads of a sum of products of different tensors."""
    if len(block.stores) != 1 or type(block.stores[0].value).__name__ != "Add":
        return None
    for side in (block.stores[0].value.a, block.stores[0].value.b):
        product = _peel(side)
        if type(product).__name__ != "Mul":
            continue
        left, right = _peel(product.a), _peel(product.b)
        loads = type(left).__name__ == type(right).__name__ == "TensorLoad"
        if loads and not left.source.same_as(right.source):
            return left, right
    return None


def _variables(node: Any) -> list[Any]:
    return [inner for inner in nodes_of(node) if type(inner).__name__ == "Var"]


def _contraction(block: _Block, left: Any, right: Any, blocks: list[_Block]) -> str:
    """Convolutions slide a window: an index of the data adds a reduced to an output variable."""
    for data, weight in ((left, right), (right, left)):
        ours = {v for index in weight.indices for v in _variables(index)}
        windows = [
            names
            for names in (_variables(index) for index in data.indices)
            if any(v in block.reduced for v in names)
            and any(v in block.spatial and v not in ours for v in names)
        ]
        if windows:
            return _convolution(block, data, ours, windows, blocks)
    shared = {v for index in left.indices for v in _variables(index)}
    shared &= {v for index in right.indices for v in _variables(index)}
    batched = any(block.spatial.get(v, 1) > 1 for v in shared)
    return "batch_matmul" if batched else "dense"


def _convolution(
    block: _Block, data: Any, weight: set[Any], windows: list[list[Any]], blocks: list[_Block]
) -> str:
    name = f"conv{len(windows)}d"
    # A transposed convolution spreads its input first: a block that keeps every n-th point.
    if any("FloorMod" in other.kinds() for other in blocks if not other.reduced):
        return f"{name}_transpose"
    used = {v for index in data.indices for v in _variables(index)}
    if not any(v in block.spatial and v in weight for v in used):
        return name
    sliding = {v for names in windows for v in names}
    inner = math.prod(extent for v, extent in block.reduced.items() if v not in sliding)
    return f"depthwise_{name}" if inner == 1 else f"grouped_{name}"


def _reduction(reductions: list[_Block], kinds: set[str]) -> str:
    maxima = any("Max" in block.kinds() for block in reductions)
    if maxima and "tirx.exp" in kinds and len(reductions) > 1:
        return "softmax"
    if kinds & {"tirx.rsqrt", "tirx.sqrt"}:
        return "norm"
    if any(_slides(block) for block in reductions):
        return "pool"
    return "reduce"


def _slides(block: _Block) -> bool:
    loads = [node for node in block.nodes if type(node).__name__ == "TensorLoad"]
    indices = [_variables(index) for load in loads for index in load.indices]
    return any(
        any(v in block.reduced for v in names) and any(v in block.spatial for v in names)
        for names in indices
    )


def _gathers(block: _Block) -> bool:
    loads = [node for node in block.nodes if type(node).__name__ == "TensorLoad"]
    inner = (node for load in loads for index in load.indices for node in nodes_of(index))
    return any(type(node).__name__ == "TensorLoad" for node in inner)


def _computes(block: _Block) -> bool:
    """Whether a stored value is more than one of the inputs, moved."""
    return any(not _moved(store.value) for store in block.stores)


def _moved(value: Any) -> bool:
    kind = type(value).__name__
    if kind == "Call" and str(getattr(value.op, "name", "")).endswith(".if_then_else"):
        return all(_moved(branch) for branch in list(value.args)[1:])
    if kind == "Select":
        return _moved(value.true_value) and _moved(value.false_value)
    return kind in ("TensorLoad", "FloatImm", "IntImm")
