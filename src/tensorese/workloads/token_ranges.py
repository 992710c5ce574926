"""How large an integer input may be: what the tables it is looked up in have rows."""

from __future__ import annotations

from typing import Any

from tensorese.tvm_env import import_tvm

# Operators whose result holds no other indices than their argument.
_KEEPS = {
    "relax.astype",
    "relax.broadcast_to",
    "relax.expand_dims",
    "relax.flatten",
    "relax.permute_dims",
    "relax.reshape",
    "relax.squeeze",
    "relax.strided_slice",
    "relax.where",  # between an index and the same counted from the end
}


def lookup_ranges(module: Any) -> dict[int, int]:
    """By the place of an input: the rows of the smallest table it indexes directly."""
    relax = import_tvm().relax
    function = module["main"]
    origin: dict[Any, set[int]] = {var: {at} for at, var in enumerate(function.params)}
    rows: dict[int, int] = {}
    for block in getattr(function.body, "blocks", []):
        for binding in block.bindings:
            call: Any = getattr(binding, "value", None)
            name = str(getattr(getattr(call, "op", None), "name", ""))
            if isinstance(call, relax.Var):
                origin[binding.var] = origin.get(call, set())
            elif name in _KEEPS:
                sources = [
                    origin.get(one, set()) for one in call.args if isinstance(one, relax.Var)
                ]
                origin[binding.var] = set().union(*sources)
            elif name in ("relax.take", "relax.gather_nd", "relax.gather_elements"):
                extent = _rows(call)
                for at in origin.get(call.args[1], set()) if extent else ():
                    rows[at] = min(extent, rows.get(at, extent))
    return rows


def _rows(call: Any) -> int:
    axis = getattr(call.attrs, "axis", 0)
    try:
        return int(call.args[0].ty.shape[0 if axis is None else int(axis)])
    except (TypeError, IndexError, AttributeError):  # an extent that is not known
        return 0
