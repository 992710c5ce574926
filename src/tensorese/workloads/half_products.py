"""Matrix products of half-precision torch programs, as torch computes them.

TVM's front end gives every product float32 results and then cannot add a half-precision bias to
them. Sums in float32, rounded once at their end, are also what torch does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorese.tvm_env import import_tvm

Converter = Callable[[Any, Any], Any]


def converters() -> dict[str, Converter]:
    """By torch's names of the operators, for `from_exported_program`."""
    names = ("matmul.default", "mm.default", "bmm.default")
    return {"linear.default": _linear, **dict.fromkeys(names, _product)}


def _linear(node: Any, importer: Any) -> Any:
    relax = import_tvm().relax
    x, weight, *rest = importer.retrieve_args(node)
    product = _rounded(importer, x, relax.op.permute_dims(weight))
    bias = rest[0] if rest else None
    return product if bias is None else importer.block_builder.emit(relax.op.add(product, bias))


def _product(node: Any, importer: Any) -> Any:
    return _rounded(importer, *importer.retrieve_args(node))


def _rounded(importer: Any, x: Any, y: Any) -> Any:
    relax = import_tvm().relax
    emit = importer.block_builder.emit
    return emit(relax.op.astype(emit(relax.op.matmul(x, y, out_dtype="float32")), x.ty.dtype))
