"""Rewrites a Relax graph for inference where TVM's own passes do not: batch norm into weights.

TVM decomposes a batch norm into five elementwise operators and leaves them beside the
convolution, and its constant folder compiles a kernel for every shape. Here both are numpy.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from tensorese.tvm_env import import_tvm

_CONVOLUTIONS = {f"relax.nn.conv{n}d" for n in (1, 2, 3)}
_TRANSPOSED = {f"relax.nn.conv{n}d_transpose" for n in (1, 2, 3)}


def _axes(call: Any) -> list[int] | None:
    return None if call.attrs.axes is None else [int(axis) for axis in call.attrs.axes]


def _shape(call: Any) -> tuple[int, ...]:
    return tuple(int(extent) for extent in call.ty.shape)


# What is computed when every tensor argument is constant, from the call and the arrays.
_FOLDS: dict[str, Callable[..., Any]] = {
    "relax.permute_dims": lambda call, x: np.transpose(x, _axes(call)),
    "relax.reshape": lambda call, x: x.reshape(_shape(call)),
    "relax.expand_dims": lambda call, x: x.reshape(_shape(call)),
    "relax.squeeze": lambda call, x: x.reshape(_shape(call)),
    "relax.add": lambda call, x, y: x + y,
    "relax.multiply": lambda call, x, y: x * y,
}


def simplify(module: Any) -> Any:
    """Batch norms folded, re-layouts of constants computed, clips as minimum and maximum.

    A function with control flow is returned as it came: TVM's own passes still apply to it.
    """
    relax = import_tvm().relax
    function = module["main"]
    blocks = getattr(function.body, "blocks", [])
    if not all(isinstance(block, relax.DataflowBlock) for block in blocks):
        return module
    bindings = [binding for block in blocks for binding in block.bindings]
    if not all(isinstance(binding, relax.VarBinding) for binding in bindings):
        return module
    rewriter = _Rewriter(relax, bindings, function.body.body)
    builder = rewriter.builder
    with builder.function("main", list(function.params), attrs=dict(function.attrs or {})):
        with builder.dataflow():
            for binding in bindings:
                rewriter.values[binding.var] = rewriter.rewrite(binding.value)
            output = builder.emit_output(rewriter.current(function.body.body))
        builder.emit_func_output(output)
    done = builder.get()
    return relax.transform.DeadCodeElimination()(relax.transform.CanonicalizeBindings()(done))


class _Rewriter:
    """Goes through a straight line of bindings once; `values` maps old variables to new."""

    def __init__(self, relax: Any, bindings: list[Any], output: Any) -> None:
        self.relax = relax
        self.builder = relax.BlockBuilder()
        self.values: dict[Any, Any] = {}
        self.made_by: dict[Any, Any] = {}
        """New variable to the call that computes it."""
        self.uses = self._count_uses([*(binding.value for binding in bindings), output])

    def _count_uses(self, values: list[Any]) -> Counter[Any]:
        uses: Counter[Any] = Counter()
        for value in values:
            self.relax.analysis.post_order_visit(
                value, lambda e: uses.update([e]) if isinstance(e, self.relax.Var) else None
            )
        return uses

    def current(self, value: Any) -> Any:
        """An old expression over the new variables."""
        relax = self.relax
        if isinstance(value, relax.Var):
            return self.values.get(value, value)
        if isinstance(value, relax.Tuple):
            return relax.Tuple([self.current(field) for field in value.fields])
        return value

    def rewrite(self, value: Any) -> Any:
        relax = self.relax
        if isinstance(value, relax.TupleGetItem):
            source = self.current(value.tuple_value)
            if isinstance(source, relax.Tuple):
                return source.fields[value.index]
            return self.emit(relax.TupleGetItem(source, value.index))
        if not isinstance(value, relax.Call):
            return self.current(value)
        arguments = [self.current(argument) for argument in value.args]
        name = getattr(value.op, "name", "")
        if name == "relax.nn.batch_norm" and all(map(self.is_constant, arguments[1:5])):
            normed = self.batch_norm(value, arguments, self.uses[value.args[0]])
            return relax.Tuple([normed, arguments[3], arguments[4]])
        if name == "relax.clip":
            return self.clip(arguments, str(value.ty.dtype))
        if name == "relax.take" and str(value.attrs.mode) == "fast":
            # As imported, an index out of range would read foreign memory.
            axis = None if value.attrs.axis is None else int(value.attrs.axis)
            return self.emit(relax.op.take(arguments[0], arguments[1], axis, mode="clip"))
        folded = self.fold(name, value, arguments)
        return folded if folded is not None else self.emit_call(value, arguments)

    def emit(self, value: Any) -> Any:
        var = self.builder.emit(value)
        self.made_by[var] = value
        return var

    def emit_call(self, call: Any, arguments: list[Any]) -> Any:
        # The result's type is inferred anew: it is the old one, but for re-laid-out arguments.
        new = self.relax.Call(call.op, arguments, call.attrs, call.ty_args)
        return self.emit(new)

    def is_constant(self, value: Any) -> bool:
        return isinstance(value, import_tvm().ir.GenericConst)

    def constant(self, array: Any, dtype: str) -> Any:
        return self.relax.const(np.ascontiguousarray(array, dtype), dtype)

    def fold(self, name: str, call: Any, arguments: list[Any]) -> Any:
        tensors = arguments[:1] if name == "relax.reshape" else arguments
        if name not in _FOLDS or not all(map(self.is_constant, tensors)):
            return None
        arrays = [tensor.value.numpy() for tensor in tensors]
        return self.constant(_FOLDS[name](call, *arrays), str(call.ty.dtype))

    def clip(self, arguments: list[Any], dtype: str) -> Any:
        """TVM carries minimum and maximum through a change of layout, but not a clip."""
        x, low, high = arguments[0], float(arguments[1].value), float(arguments[2].value)
        if low > -math.inf:
            x = self.emit(self.relax.op.maximum(x, self.relax.const(low, dtype)))
        if high < math.inf:
            x = self.emit(self.relax.op.minimum(x, self.relax.const(high, dtype)))
        return x

    def batch_norm(self, call: Any, arguments: list[Any], uses: int) -> Any:
        """x * scale + shift, the scale moved into the weights of a convolution before it."""
        gamma, beta, mean, variance = (a.value.numpy().astype("float64") for a in arguments[1:5])
        scale = gamma / np.sqrt(variance + float(call.attrs.epsilon))
        shift = beta - mean * scale
        x, axis, dtype = arguments[0], int(call.attrs.axis), str(call.args[0].ty.dtype)
        aside = [1] * len(call.args[0].ty.shape)
        aside[axis] = -1
        scale_aside, shift_aside = scale.reshape(aside), shift.reshape(aside)
        convolution, bias = self.split_bias(x)
        scaled = self.scale_weights(convolution, scale, axis) if uses == 1 else None
        if scaled is None:
            scaled = self.emit(self.relax.op.multiply(x, self.constant(scale_aside, dtype)))
        else:
            shift_aside = shift_aside + bias * scale_aside
        return self.emit(self.relax.op.add(scaled, self.constant(shift_aside, dtype)))

    def split_bias(self, x: Any) -> tuple[Any, Any]:
        """(y, b) where x is y + b with a constant b, else (x, 0)."""
        call: Any = self.made_by.get(x)
        if getattr(getattr(call, "op", None), "name", "") == "relax.add":
            left, right = call.args
            if self.is_constant(right):
                return left, right.value.numpy().astype("float64")
            if self.is_constant(left):
                return right, left.value.numpy().astype("float64")
        return x, 0.0

    def scale_weights(self, x: Any, scale: Any, axis: int) -> Any:
        """The convolution that computes x, scaled per output channel; None where x is none."""
        call: Any = self.made_by.get(x)
        name = getattr(getattr(call, "op", None), "name", "")
        grouped_transpose = name in _TRANSPOSED and int(call.attrs.groups) != 1
        if name not in _CONVOLUTIONS | _TRANSPOSED or grouped_transpose:
            return None
        weight = call.args[1]
        layout = str(call.attrs.out_layout or call.attrs.data_layout)
        if not self.is_constant(weight) or layout.index("C") != axis:
            return None
        array, dtype = weight.value.numpy(), str(weight.ty.dtype)
        aside = [1] * array.ndim
        aside[str(call.attrs.kernel_layout).index("O")] = -1
        arguments = [call.args[0], self.constant(array * scale.reshape(aside), dtype)]
        return self.emit_call(call, arguments)
