"""An exported half-precision program computed in float32: what its rounding is judged by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorese.workloads.network import Array

HALVES = ("float16", "bfloat16")


def widened_outputs(torch: Any, program: Any, arrays: Sequence[Array]) -> list[Array]:
    """The program's outputs with every half-precision value and type replaced by float32."""
    from tensorese.workloads.from_torch import flat_outputs, nested, tensor_of

    halves = {torch.float16, torch.bfloat16}

    def wide(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dtype in halves:
            return value.float()
        return torch.float32 if isinstance(value, torch.dtype) and value in halves else value

    def widened(values: Any) -> Any:
        return torch.utils._pytree.tree_map(wide, values)

    class Wide(torch.fx.Interpreter):  # type: ignore[misc]
        def placeholder(self, target: Any, args: Any, kwargs: Any) -> Any:
            return widened(super().placeholder(target, args, kwargs))

        def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
            return widened(super().get_attr(target, args, kwargs))

        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if "_assert_tensor_metadata" in str(target):
                return None  # it states the types that are replaced here
            return widened(super().call_function(target, widened(args), widened(kwargs)))

        def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
            return None  # torch's check of the inputs' shapes and types

    with torch.no_grad():
        module = program.module()
        args, kwargs = nested(program, [tensor_of(torch, array) for array in arrays])
        flat = torch.utils._pytree.tree_leaves((args, kwargs))
        return flat_outputs(torch, Wide(module).run(*flat, enable_io_processing=False))
