"""Scale and shift, moved into whatever computes their operand.

conv(x, w) + b, then * s + t, is conv(x, w * s) + (b * s + t): one convolution and one bias. The
same holds for a product with a constant in the convolution's place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorese.tvm_env import import_tvm

_CONVOLUTIONS = {f"relax.nn.conv{n}d" for n in (1, 2, 3)}
_TRANSPOSED = {f"relax.nn.conv{n}d_transpose" for n in (1, 2, 3)}


def name_of(call: Any) -> str:
    """The operator's name; empty for what is no call of an operator."""
    return str(getattr(getattr(call, "op", None), "name", ""))


class Affine:
    """Emits bindings and remembers what made each variable and how many read it."""

    def __init__(self, relax: Any) -> None:
        self.relax = relax
        self.builder = relax.BlockBuilder()
        self.values: dict[Any, Any] = {}
        """Old variable to new expression."""
        self.made_by: dict[Any, Any] = {}
        """New variable to the call that computes it."""
        self.readers: dict[Any, int] = {}
        """New variable to how many read it, where more than the next rule could."""

    def emit(self, value: Any) -> Any:
        var = self.builder.emit(value)
        self.made_by[var] = value
        return var

    def is_constant(self, value: Any) -> bool:
        return isinstance(value, import_tvm().ir.GenericConst)

    def constant(self, array: Any, dtype: str) -> Any:
        return self.relax.const(np.array(array, dtype, order="C"), dtype)

    def affine(self, x: Any, scale: Any, shift: Any) -> Any:
        """x * scale + shift; both arrays have x's rank and broadcast to it."""
        relax, dtype = self.relax, str(x.ty.dtype)
        base, bias = self.split(x, "relax.add", 0.0)
        if np.all(scale == 1):
            x, shift = base, bias + shift
        elif (scaled := self.scaled(base, scale)) is not None:
            x, shift = scaled, bias * scale + shift
        else:
            x = self.emit(relax.op.multiply(x, self.constant(scale, dtype)))
        return self.emit(relax.op.add(x, self.constant(shift, dtype))) if np.any(shift) else x

    def split(self, x: Any, operator: str, neutral: float) -> tuple[Any, Any]:
        """(y, c) where x is y + c or y * c for a constant c and nothing else reads x."""
        call: Any = self.made_by.get(x)
        if name_of(call) == operator and self.readers.get(x, 1) == 1:
            left, right = call.args
            for y, c in ((left, right), (right, left)):
                if self.is_constant(c) and len(c.ty.shape) in (0, len(y.ty.shape)):
                    return y, c.value.numpy().astype("float64")
        return x, neutral

    def scaled(self, x: Any, scale: Any) -> Any:
        """x * scale at no cost, by other weights or another factor; None where it has neither."""
        if self.readers.get(x, 1) != 1:
            return None
        y, factor = self.split(x, "relax.multiply", 1.0)
        if y is not x:
            product = self.constant(factor * scale, str(x.ty.dtype))
            return self.emit(self.relax.op.multiply(y, product))
        return self.scaled_convolution(self.made_by.get(x), scale)

    def scaled_convolution(self, call: Any, scale: Any) -> Any:
        name = name_of(call)
        if name not in _CONVOLUTIONS | _TRANSPOSED or not self.is_constant(call.args[1]):
            return None
        if name in _TRANSPOSED and int(call.attrs.groups) != 1:
            return None
        channels = str(call.attrs.out_layout or call.attrs.data_layout).index("C")
        if scale.shape[channels] != scale.size:  # more than one factor a channel
            return None
        weight, dtype = call.args[1].value.numpy(), str(call.args[1].ty.dtype)
        aside = [1] * weight.ndim
        aside[str(call.attrs.kernel_layout).index("O")] = -1
        new = [call.args[0], self.constant(weight * scale.reshape(aside), dtype)]
        return self.emit(self.relax.Call(call.op, new, call.attrs, call.ty_args))
