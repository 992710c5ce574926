"""How this package has TVM turn a kernel into code; what a program is does not change."""

from __future__ import annotations

from typing import Any

from tensorese.lowering import aligned_stack, async_copies, shared_loops, vector_math
from tensorese.lowering.rewriter import add_to_pipeline

VERSIONS = {"llvm": "1", "cuda": "1"}
"""Goes up with every change that alters code: programs timed before and after do not compare."""


def pass_config(kind: str) -> dict[str, Any]:
    """For TVM's pass context. Whoever runs a kernel passes what it declares, so nothing is checked
    again; TVM makes a pipeline's copies asynchronous on a GPU only where it is asked to."""
    config = {"tirx.disable_assert": True}
    return {**config, "tirx.use_async_copy": True} if kind == "cuda" else config


def register(tvm: Any) -> None:
    """From now on this process builds kernels so."""
    vector_math.register(tvm)
    # Frames last: a shared loop's body is the function that gets one.
    add_to_pipeline(tvm, lambda: [shared_loops.share(tvm), aligned_stack.align(tvm)])
    async_copies.register(tvm)
