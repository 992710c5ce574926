"""How this package has TVM turn a CPU kernel into code; what a program is does not change."""

from __future__ import annotations

from typing import Any

from tensorese.lowering import aligned_stack, shared_loops, vector_math
from tensorese.lowering.rewriter import add_to_pipeline

VERSION = "1"
"""Goes up with every change that alters code: programs timed before and after do not compare."""


def register(tvm: Any) -> None:
    """From now on this process builds kernels so."""
    vector_math.register(tvm)
    # Frames last: a shared loop's body is the function that gets one.
    add_to_pipeline(tvm, lambda: [shared_loops.share(tvm), aligned_stack.align(tvm)])
