"""Kernels whose stack frames start on a cache line.

LLVM keeps vectors of 64 bytes on the stack where registers do not suffice, but a frame is only
aligned to 16 bytes unless something on it asks for more before registers are assigned. Most of
those spills then cross cache lines, more or fewer by where a process's stack happens to begin: one
and the same program took 51, 73 or 97 microseconds in three processes. A slot of 64 bytes that
cannot be optimised away makes LLVM align the whole frame, for one prefetch per parallel job.
"""

from __future__ import annotations

from typing import Any

from tensorese.lowering.rewriter import LoopRewriter

_SLOT = "float32x16"
_COMPUTE = "compute_scope"  # the part of an entry function that LLVM gets as a function of its own


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
        self.loops = _Loops(tvm)
        self.scopes = _Scopes(tvm)

    def of(self, body: Any) -> Any:
        made = self.loops.within(body)
        return self.scopes.within(body) if made.same_as(body) else made


class _Slots(LoopRewriter):
    def with_slot(self, body: Any) -> Any:
        tirx, stmt = self.tirx, self.stmt
        slot = tirx.decl_buffer((1,), _SLOT, name="aligned", scope="local")
        read, near, data = (tirx.const(value, "int32") for value in (0, 3, 1))
        touched = tirx.call_llvm_intrin(
            "void", "llvm.prefetch", tirx.address_of(slot[0]), read, near, data
        )
        return stmt.SeqStmt([stmt.AllocBuffer(slot), stmt.Evaluate(touched), body])


class _Loops(_Slots):
    def loop(self, node: Any) -> Any | None:
        if node.kind != self.stmt.ForKind.PARALLEL:
            return None
        return self.loop_with(node, self.with_slot(node.body))


class _Scopes(_Slots):
    def attribute(self, node: Any) -> Any | None:
        if node.attr_key != _COMPUTE:
            return None
        return self.attribute_with(node, self.with_slot(node.body))
