"""Copies to a GPU's shared memory that nobody waits for, where the hardware can do them.

Asked for asynchronous copies, TVM takes a copy that looks like a block for one of a DMA engine,
which no GPU has (a third of the pipelined programs would not compile), and copies vectors by one
instruction whatever their addresses: backwards ones would be read forwards, those off their
boundary end in a fault. Here the former stay copies of threads, and the latter are waited for.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from tensorese.lowering.rewriter import LoopRewriter

_SCOPE = "async_scope"


def register(tvm: Any) -> None:
    """In the place of TVM's lowering to a DMA engine."""
    transform: Any = importlib.import_module("tvm.s_tir.transform")
    transform.LowerAsyncDMA = lambda: aligned_only(tvm)


def aligned_only(tvm: Any) -> Any:
    """The pass, for functions whose loops are vectorised."""
    scopes = _Scopes(tvm)

    def change(function: Any, *_: Any) -> Any:
        return function.with_body(scopes.within(function.body))

    return tvm.tirx.transform.prim_func_pass(change, opt_level=0, name="tensorese.AlignedCopies")


class _Scopes(LoopRewriter):
    def __init__(self, tvm: Any) -> None:
        super().__init__(tvm)
        self.analyzer = tvm.sym.Analyzer()
        self.load = tvm.ir.TensorLoad

    def attribute(self, node: Any) -> Any | None:
        if node.attr_key != _SCOPE:
            return None
        return node if all(map(self._is_aligned, self._ramps(node.body))) else node.body

    def _is_aligned(self, ramp: Any) -> bool:
        base = self.analyzer.modular_set(ramp.base)
        lanes = int(ramp.lanes)
        return int(ramp.stride) == 1 and base.coeff % lanes == 0 and base.base % lanes == 0

    def _ramps(self, node: Any) -> Iterator[Any]:
        """Of the addresses that are read and written."""
        stmt, tirx = self.stmt, self.tirx
        if isinstance(node, stmt.SeqStmt):
            for one in node.seq:
                yield from self._ramps(one)
        elif isinstance(node, stmt.For | stmt.AttrStmt):
            yield from self._ramps(node.body)
        elif isinstance(node, stmt.IfThenElse):
            yield from self._ramps(node.then_case)
        elif isinstance(node, stmt.BufferStore):
            for access in (node, *self._loads(node.value)):
                yield from (index for index in access.indices if isinstance(index, tirx.Ramp))

    def _loads(self, value: Any) -> Iterator[Any]:
        """A copied value is read as it is, or where it is not padding."""
        if isinstance(value, self.load):
            yield value
        for argument in getattr(value, "args", ()):
            yield from self._loads(argument)
