"""Keeps an attention mask out of the matrix product to whose sums it is added.

On a CPU MetaSchedule never inlines a choice (`where`, an exponential). Fused beside a product or a
convolution, into the sum that follows it, such a block stands in the way of every tiling: the task
has no space at all. As a kernel of its own it costs little, and the product can be tuned.
"""

from __future__ import annotations

from typing import Any

from tensorese.tvm_env import import_tvm

_INJECTIVE, _OUT_FUSIBLE, _OPAQUE = 2, 4, 8  # TVM's patterns; up to injective is elementwise
_NOT_INLINED = ("T.Select(", "T.if_then_else(", "T.exp(")  # as TVM prints them


def keep_masks_apart(module: Any) -> Any:
    """Marks kernels opaque that would join a product's epilogue without reading the product."""
    tvm = import_tvm()
    products: set[Any] = set()  # variables that a product or convolution went into
    masks: dict[Any, set[Any]] = {}  # variables to the choices that went into them
    apart: set[Any] = set()
    for var, kernel, arguments in _calls(tvm, module["main"]):
        pattern = _pattern(module[kernel])
        if pattern == _OUT_FUSIBLE:
            products.add(var)
        if pattern > _INJECTIVE:
            continue
        beside = set().union(*(masks.get(one, set()) for one in arguments))
        if products.intersection(arguments):
            products.add(var)
            apart |= beside
        elif _is_choice(module[kernel]):
            masks[var] = {*beside, kernel}
        else:
            masks[var] = beside
    for kernel in apart:
        module.update_func(kernel, module[kernel].with_attr("op_pattern", _OPAQUE))
    return module


def _calls(tvm: Any, function: Any) -> list[tuple[Any, Any, list[Any]]]:
    """Every kernel call in order: the variable it makes, the kernel, its arguments."""
    calls = []
    for block in getattr(function.body, "blocks", []):
        for binding in block.bindings:
            value: Any = getattr(binding, "value", None)
            if str(getattr(getattr(value, "op", None), "name", "")) == "relax.call_tir":
                fields = [f for f in value.args[1].fields if isinstance(f, tvm.relax.Var)]
                calls.append((binding.var, value.args[0], fields))
    return calls


def _pattern(function: Any) -> int:
    return int((function.attrs or {}).get("op_pattern", _OPAQUE))


def _is_choice(function: Any) -> bool:
    return any(spelled in function.script() for spelled in _NOT_INLINED)
