"""A walk over lowered host code that puts something in the place of a statement here and there."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

_PIPELINE = "s_tir"  # what `tvm.build` and Relax lower kernels with


def add_to_pipeline(tvm: Any, passes: Callable[[], list[Any]]) -> None:
    """Runs `passes` after all of TVM's own, on host functions: lowering would undo them."""
    importlib.import_module("tvm.s_tir.pipeline")
    pipelines: dict[str, Any] = importlib.import_module(
        "tvm.tirx.compilation_pipeline"
    ).PIPELINE_MAP
    stock = pipelines[_PIPELINE]

    def ours() -> tuple[Any, Any, Any]:
        lower, finish_host, finish_device = stock()

        def finish() -> Any:
            return tvm.transform.Sequential([finish_host(), *passes()])

        return lower, finish, finish_device

    pipelines[_PIPELINE] = ours


class LoopRewriter:
    """Subclasses say what becomes of a loop or an attribute; None: look inside."""

    def __init__(self, tvm: Any) -> None:
        self.tirx = tvm.tirx
        self.stmt: Any = importlib.import_module("tvm.tirx.stmt")

    def loop(self, node: Any) -> Any | None:
        return None

    def attribute(self, node: Any) -> Any | None:
        return None

    def within(self, node: Any) -> Any:
        """`node` itself where nothing changed."""
        stmt = self.stmt
        if isinstance(node, stmt.For):
            made = self.loop(node)
            return self.loop_with(node, self.within(node.body)) if made is None else made
        if isinstance(node, stmt.AttrStmt):
            made = self.attribute(node)
            return self.attribute_with(node, self.within(node.body)) if made is None else made
        if isinstance(node, stmt.SeqStmt):
            old = list(node.seq)
            new = [self.within(one) for one in old]
            same = all(one.same_as(other) for one, other in zip(old, new, strict=True))
            return node if same else stmt.SeqStmt(new)
        if isinstance(node, stmt.IfThenElse):
            return self._condition(node)
        return node

    def loop_with(self, node: Any, body: Any) -> Any:
        if body.same_as(node.body):
            return node
        head = (node.loop_var, node.min, node.extent, node.kind)
        return self.stmt.For(*head, body, node.thread_binding, node.annotations)

    def attribute_with(self, node: Any, body: Any) -> Any:
        if body.same_as(node.body):
            return node
        return self.stmt.AttrStmt(node.node, node.attr_key, node.value, body)

    def _condition(self, node: Any) -> Any:
        then = self.within(node.then_case)
        other = node.else_case
        other = other if other is None else self.within(other)
        if then.same_as(node.then_case) and (other is None or other.same_as(node.else_case)):
            return node
        return self.stmt.IfThenElse(node.condition, then, other)
