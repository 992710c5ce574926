"""Kernels whose stack frames start on a cache line.

LLVM keeps vectors of 64 bytes on the stack where registers do not suffice, but a frame is only
aligned to 16 bytes unless something on it asks for more before registers are given out. Most of
those spills then cross cache lines, more or fewer by where a process's stack happens to begin: one
and the same program took 51, 73 or 97 microseconds in three processes. A slot of 64 bytes that
cannot be optimised away makes LLVM align the whole frame, for one prefetch per parallel job.
"""

from __future__ import annotations

import importlib
from typing import Any

_PIPELINE = "s_tir"  # what `tvm.build` and Relax lower kernels with
_SLOT = "float32x16"
_COMPUTE = "compute_scope"  # the part of an entry function that LLVM gets as a function of its own


def register(tvm: Any) -> None:
    """From now on this process builds host code so."""
    importlib.import_module("tvm.s_tir.pipeline")
    pipelines: dict[str, Any] = importlib.import_module(
        "tvm.tirx.compilation_pipeline"
    ).PIPELINE_MAP
    stock = pipelines[_PIPELINE]

    def ours() -> tuple[Any, Any, Any]:
        lower, finish_host, finish_device = stock()

        def finish() -> Any:
            # Last, because lowering would move the slot from the stack to a workspace.
            return tvm.transform.Sequential([finish_host(), align(tvm)])

        return lower, finish, finish_device

    pipelines[_PIPELINE] = ours


def align(tvm: Any) -> Any:
    """The pass, for lowered host functions."""
    frames = Frames(tvm)

    def change(function: Any, *_: Any) -> Any:
        return function.with_body(frames.of(function.body))

    return tvm.tirx.transform.prim_func_pass(change, opt_level=0, name="tensorese.AlignStack")


class Frames:
    """Puts a slot into every body that becomes a function of its own: parallel loops first,
    the computing part of functions that have none."""

    def __init__(self, tvm: Any) -> None:
        self.tirx = tvm.tirx
        self.stmt: Any = importlib.import_module("tvm.tirx.stmt")

    def of(self, body: Any) -> Any:
        made = self._within(body, parallel=True)
        return self._within(body, parallel=False) if made.same_as(body) else made

    def _within(self, node: Any, *, parallel: bool) -> Any:
        stmt = self.stmt
        if isinstance(node, stmt.For):
            if parallel and node.kind == stmt.ForKind.PARALLEL:
                return self._loop(node, self._with_slot(node.body))
            return self._loop(node, self._within(node.body, parallel=parallel))
        if isinstance(node, stmt.AttrStmt):
            if not parallel and node.attr_key == _COMPUTE:
                return self._attribute(node, self._with_slot(node.body))
            return self._attribute(node, self._within(node.body, parallel=parallel))
        if isinstance(node, stmt.SeqStmt):
            old = list(node.seq)
            new = [self._within(one, parallel=parallel) for one in old]
            same = all(one.same_as(other) for one, other in zip(old, new, strict=True))
            return node if same else stmt.SeqStmt(new)
        if isinstance(node, stmt.IfThenElse):
            return self._condition(node, parallel)
        return node

    def _with_slot(self, body: Any) -> Any:
        tirx, stmt = self.tirx, self.stmt
        slot = tirx.decl_buffer((1,), _SLOT, name="aligned", scope="local")
        read, near, data = (tirx.const(value, "int32") for value in (0, 3, 1))
        touched = tirx.call_llvm_intrin(
            "void", "llvm.prefetch", tirx.address_of(slot[0]), read, near, data
        )
        return stmt.SeqStmt([stmt.AllocBuffer(slot), stmt.Evaluate(touched), body])

    def _loop(self, node: Any, body: Any) -> Any:
        if body.same_as(node.body):
            return node
        head = (node.loop_var, node.min, node.extent, node.kind)
        return self.stmt.For(*head, body, node.thread_binding, node.annotations)

    def _attribute(self, node: Any, body: Any) -> Any:
        if body.same_as(node.body):
            return node
        return self.stmt.AttrStmt(node.node, node.attr_key, node.value, body)

    def _condition(self, node: Any, parallel: bool) -> Any:
        then = self._within(node.then_case, parallel=parallel)
        other = node.else_case
        other = other if other is None else self._within(other, parallel=parallel)
        if then.same_as(node.then_case) and (other is None or other.same_as(node.else_case)):
            return node
        return self.stmt.IfThenElse(node.condition, then, other)
