"""What each block of a serialised TVM module reads and writes, from its JSON and never through TVM.

An index stays an expression over the block's iterators; `span` says how far it reaches while the
iterators run over a box. Strides, paddings, groups and layouts are all in there, so that nothing
has to be guessed from the number of axes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tensorese.arrays import Floats64

Index: TypeAlias = tuple[Any, ...]
"""`("c", value)`, `("i", iterator)`, `(operation, index, index)`, or `("?",)` for the rest."""

UNKNOWN: Index = ("?",)
_OPERATIONS = {
    "Add": "+",
    "Sub": "-",
    "Mul": "*",
    "FloorDiv": "/",
    "Div": "/",
    "FloorMod": "%",
    "Mod": "%",
    "Min": "m",
    "Max": "m",
}
_BYTES = {"float64": 8, "int64": 8, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "bool": 1}
_REDUCES = 2
FAR = 1e12


class Operand(NamedTuple):
    """One buffer as a block reads or writes it."""

    buffer: int
    shape: tuple[int, ...]
    indices: tuple[Index, ...]
    element: int
    """Bytes an element."""
    free: bool
    """A weight that the compiler may lay out as the loops want it."""


class Block(NamedTuple):
    name: str
    extents: tuple[int, ...]
    reduces: tuple[bool, ...]
    reads: tuple[Operand, ...]
    writes: tuple[Operand, ...]


def span(index: Index, lengths: Floats64) -> Floats64:
    """Largest less smallest value of an index while iterator k takes `lengths[:, k]` values."""
    kind = index[0]
    if kind == "c":
        return np.zeros(len(lengths))
    if kind == "i":
        return np.asarray(lengths[:, index[1]] - 1.0)
    if kind == "?":
        return np.full(len(lengths), FAR)
    a, b = index[1], index[2]
    if kind in "+-":
        return span(a, lengths) + span(b, lengths)
    if kind == "m":
        return np.maximum(span(a, lengths), span(b, lengths))
    if b[0] != "c":
        if kind == "*" and a[0] == "c":
            return np.asarray(span(b, lengths) * abs(a[1]))
        return np.full(len(lengths), FAR)
    constant = max(abs(b[1]), 1)
    mine = span(a, lengths)
    if kind == "*":
        return np.asarray(mine * abs(b[1]))
    if kind == "/":
        return np.asarray(np.floor(mine / constant))
    return np.asarray(np.minimum(mine, constant - 1.0))


def coefficient(index: Index, iterator: int) -> float:
    """By how much an index grows with an iterator; 0 where it takes no direct part."""
    kind = index[0]
    if kind == "i":
        return float(index[1] == iterator)
    if kind in "c?":
        return 0.0
    a, b = (coefficient(part, iterator) for part in index[1:])
    if kind == "+":
        return a + b
    if kind == "-":
        return a - b
    if kind == "*":
        left, right = index[1], index[2]
        return b * left[1] if left[0] == "c" else a * right[1] if right[0] == "c" else 0.0
    return max(a, b, key=abs) if kind in "%m" else 0.0


def iterators(index: Index) -> frozenset[int]:
    """Those that occur in an index."""
    if index[0] == "i":
        return frozenset((index[1],))
    parts = [part for part in index[1:] if isinstance(part, tuple)]
    return frozenset().union(*(iterators(part) for part in parts))


@lru_cache(maxsize=1024)
def blocks_of(module: str) -> tuple[Block, ...]:
    """The compute blocks in program order; none where the text is not a module of TVM 0.27."""
    try:
        graph = json.loads(module) if module else {}
        reader = _Reader(graph["nodes"])
        return reader.blocks()
    except (ValueError, KeyError, TypeError, IndexError):
        return ()


class _Reader:
    def __init__(self, nodes: Sequence[dict[str, Any]]) -> None:
        self.nodes = nodes
        self.free = self._free()

    def blocks(self) -> tuple[Block, ...]:
        blocks = []
        for node in self.nodes:
            if str(node["type"]).endswith("SBlock") and node["data"]["iter_vars"] is not None:
                block = self._block(node["data"])
                if block.extents:
                    blocks.append(block)
        return tuple(blocks)

    def _free(self) -> frozenset[int]:
        """Variables of the parameters whose layout is free."""
        for node in self.nodes:
            if not str(node["type"]).endswith("PrimFunc"):
                continue
            attributes = self._data(self._data(node["data"]["attrs"])["__dict__"])
            pairs = zip(attributes[0::2], attributes[1::2], strict=True)
            places = [self._list(value) for key, value in pairs if self._is_free(key)]
            params = self._list(node["data"]["params"])
            return frozenset(params[self._number(k)] for indices in places for k in indices)
        return frozenset()

    def _is_free(self, key: int) -> bool:
        return bool(self._data(key) == "layout_free_buffers")

    def _block(self, data: dict[str, Any]) -> Block:
        axes = [self._data(k) for k in self._list(data["iter_vars"])]
        places = {axis["var"]: k for k, axis in enumerate(axes)}
        extents = [self._number(self._data(axis["dom"])["extent"]) for axis in axes]
        return Block(
            name=str(self._data(data["name_hint"])),
            extents=tuple(extents),
            reduces=tuple(axis["iter_type"] == _REDUCES for axis in axes),
            reads=tuple(self._operand(k, places) for k in self._list(data["reads"])),
            writes=tuple(self._operand(k, places) for k in self._list(data["writes"])),
        )

    def _operand(self, place: int, places: dict[int, int]) -> Operand:
        region = self._data(place)
        variable = region["source"] if "source" in region else region["buffer"]
        kind = self._data(self._data(variable)["ty"])
        shape = tuple(self._number(k) for k in self._list(kind["shape"]))
        dtype = str(self._data(kind["dtype"])["dtype"])
        ranges = [self._data(k) for k in self._list(region["region"])]
        return Operand(
            buffer=variable,
            shape=shape,
            indices=tuple(self._index(r["min"], r["extent"], places) for r in ranges),
            element=_BYTES.get(dtype, 4),
            free=variable in self.free,
        )

    def _index(self, low: int, extent: int, places: dict[int, int]) -> Index:
        if self._constant(extent) != 1:
            return UNKNOWN  # more than one element at once
        return self._expression(low, places)

    def _expression(self, place: int, places: dict[int, int]) -> Index:
        if place in places:
            return ("i", places[place])
        constant = self._constant(place)
        if constant is not None:
            return ("c", constant)
        node = self.nodes[place]
        operation = _OPERATIONS.get(str(node["type"]).rpartition(".")[2])
        if operation is None:
            return UNKNOWN
        parts = (self._expression(node["data"][side], places) for side in ("a", "b"))
        return (operation, *parts)

    def _constant(self, place: int) -> int | None:
        is_number = str(self.nodes[place]["type"]).endswith(("IntImm", "int"))
        return self._number(place) if is_number else None

    def _number(self, place: int) -> int:
        data = self.nodes[place]["data"]
        return self._number(data["value"]) if isinstance(data, dict) else int(data)

    def _data(self, place: int) -> Any:
        return self.nodes[place]["data"]

    def _list(self, place: int) -> list[int]:
        items: list[int] = self.nodes[place]["data"]
        return items


def box(operand: Operand, lengths: Floats64) -> Floats64:
    """`[n, dimensions]`: from the smallest to the largest value of each index, all between too."""
    cells = [
        np.minimum(span(index, lengths) + 1.0, float(size))
        for index, size in zip(operand.indices, operand.shape, strict=True)
    ]
    return np.stack(cells, axis=1) if cells else np.ones((len(lengths), 1))


def touched(operand: Operand, lengths: Floats64) -> Floats64:
    """`[n, dimensions]`: how many values each index takes; a window's step leaves gaps in the box.

    An index has no more values than its iterators have steps.
    """
    cells = box(operand, lengths)
    for dim, index in enumerate(operand.indices):
        if not is_opaque(index):
            steps = lengths[:, sorted(iterators(index))].prod(1)
            cells[:, dim] = np.minimum(cells[:, dim], steps)
    return cells


def is_opaque(index: Index) -> bool:
    """Whether an index depends on what the module does not show: another buffer's value, say."""
    return index[0] == "?" or any(is_opaque(part) for part in index[1:] if isinstance(part, tuple))
