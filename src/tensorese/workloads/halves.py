"""Half-precision operators of torch programs that TVM's front end cannot take as they are.

It gives products and convolutions float32 results and then cannot add a half-precision bias to
them, and its normalisations know no bfloat16. Sums in float32, rounded once at their end, are also
what torch does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorese.tvm_env import import_tvm
from tensorese.workloads.widened import HALVES

Converter = Callable[[Any, Any], Any]
_IN_FLOAT32 = {
    "convolution.default": "_convolution",
    "layer_norm.default": "_layer_norm",
    "native_layer_norm.default": "_native_layer_norm",
}
"""torch's operators, by the names of TVM's own converters."""


def converters() -> dict[str, Converter]:
    """By torch's names of the operators, for `from_exported_program`."""
    names = ("matmul.default", "mm.default", "bmm.default")
    wide = {name: _in_float32(own) for name, own in _IN_FLOAT32.items()}
    own = {"linear.default": _linear, "addmm.default": _addmm}
    return {**own, **dict.fromkeys(names, _product), **wide}


def _linear(node: Any, importer: Any) -> Any:
    relax = import_tvm().relax
    x, weight, *rest = importer.retrieve_args(node)
    product = _rounded(importer, x, relax.op.permute_dims(weight))
    bias = rest[0] if rest else None
    return product if bias is None else importer.block_builder.emit(relax.op.add(product, bias))


def _addmm(node: Any, importer: Any) -> Any:
    if node.kwargs:  # factors of the two terms
        return _in_float32("_addmm")(node, importer)
    bias, x, y = importer.retrieve_args(node)
    product = _rounded(importer, x, y)
    return importer.block_builder.emit(import_tvm().relax.op.add(product, bias))


def _product(node: Any, importer: Any) -> Any:
    return _rounded(importer, *importer.retrieve_args(node))


def _rounded(importer: Any, x: Any, y: Any) -> Any:
    relax = import_tvm().relax
    emit = importer.block_builder.emit
    return emit(relax.op.astype(emit(relax.op.matmul(x, y, out_dtype="float32")), x.ty.dtype))


def _in_float32(own: str) -> Converter:
    """TVM's own converter on widened inputs, its result rounded."""

    def convert(node: Any, importer: Any) -> Any:
        relax, emit = import_tvm().relax, importer.block_builder.emit
        inputs = {one: importer.env[one] for one in node.all_input_nodes}
        dtype = str(inputs[node.args[0]].ty.dtype)
        for one, value in inputs.items():
            if str(value.ty.dtype) in HALVES:
                importer.env[one] = emit(relax.op.astype(value, "float32"))
        try:
            made = getattr(importer, own)(node)
        finally:
            importer.env.update(inputs)
        return emit(relax.op.astype(made, dtype)) if dtype in HALVES else made

    return convert
