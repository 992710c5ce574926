"""Takes copies and launches out of a simplified graph without changing what it computes.

A convolution of joined channels is the sum of one convolution for each part, so the join need not
be written (SqueezeNet copies a tenth of its time). Equal products of one tensor (an attention's
query, key and value) are one wider product, cut afterwards by the kernels that transpose it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tensorese.workloads.affine import name_of
from tensorese.workloads.simplify import NetworkRewriter, rewritten

_VECTOR, _VECTORS = 16, 32  # filters of one register, and of the two that keep a core busy
_MOST_MISSING = 0.04  # of the filters
_FEWEST_PIXELS = 64  # below, reading the weights is what takes the time
_FEWEST_PRODUCTS = 3  # of two, each mostly has its own activation fused into it


def regroup(module: Any, *, whole_vectors: bool = False) -> Any:
    """`whole_vectors`: convolutions of an odd number of filters get some more."""
    return rewritten(module, partial(Regrouper, whole_vectors=whole_vectors))


class Regrouper(NetworkRewriter):
    def __init__(
        self, relax: Any, bindings: list[Any], output: Any, *, whole_vectors: bool = False
    ) -> None:
        super().__init__(relax, bindings, output)
        self.whole_vectors = whole_vectors
        self.rules = {
            "relax.nn.conv2d": self.convolution,
            "relax.nn.max_pool2d": self.pool,
            "relax.matmul": self.product,
        }
        self.together = self._equal_products(bindings)
        """Call to all calls it is computed with."""
        self.wide: dict[Any, Any] = {}
        """First call of a group to the variable that holds all of it."""

    # -- joins ----------------------------------------------------------------------------

    def joined(self, x: Any, layout: str) -> list[Any]:
        """The tensors whose channels x is made of; empty when x is no join, or others read it."""
        call: Any = self.made_by.get(x)
        if name_of(call) != "relax.concat" or self.readers.get(x, 1) != 1:
            return []
        axis = 0 if call.attrs.axis is None else int(call.attrs.axis)
        parts = list(getattr(call.args[0], "fields", []))
        return parts if axis % len(x.ty.shape) == layout.index("C") else []

    def pool(self, call: Any, arguments: list[Any]) -> Any:
        """Pooled first, less is joined; and a convolution behind it may not need the join."""
        layout = str(call.attrs.layout)
        parts = self.joined(arguments[0], layout)
        if not parts:
            return None
        pooled = [self.emit(self.relax.Call(call.op, [part], call.attrs, ())) for part in parts]
        return self.emit(self.relax.op.concat(pooled, layout.index("C")))

    def convolution(self, call: Any, arguments: list[Any]) -> Any:
        x, weight = arguments
        parts = self.joined(x, str(call.attrs.data_layout))
        if int(call.attrs.groups) != 1 or not self.is_constant(weight):
            return None
        values, dtype = weight.value.numpy(), str(weight.ty.dtype)
        made, read = (values.shape[str(call.attrs.kernel_layout).index(c)] for c in "OI")
        if not parts or 2 * made > read:  # partial sums that are larger than the join
            return self.widened(call, x, weight) if self.whole_vectors else None
        places = np.cumsum([_channels(part, call) for part in parts])[:-1]
        pieces = np.split(values, places, str(call.attrs.kernel_layout).index("I"))
        total: Any = None
        for part, piece in zip(parts, pieces, strict=True):
            operands = [part, self.constant(piece, dtype)]
            term = self.emit(self.relax.Call(call.op, operands, call.attrs, call.ty_args))
            total = term if total is None else self.emit(self.relax.op.add(term, total))
        return total

    def widened(self, call: Any, x: Any, weight: Any) -> Any:
        """With filters of zeros up to whole vectors, which are cut off where the result is read.

        1000 filters can be tiled by 8 or 40 alone, half as fast as 1024 by 32.
        """
        layout, out = str(call.attrs.kernel_layout), str(call.attrs.out_layout)
        values = weight.value.numpy()
        filters = values.shape[layout.index("O")]
        missing = -filters % _VECTORS
        shape = [int(extent) for extent in call.ty.shape]
        pixels = np.prod(shape) // filters
        if filters % _VECTOR == 0 or missing > _MOST_MISSING * filters or pixels < _FEWEST_PIXELS:
            return None
        widths = [(0, missing if axis == "O" else 0) for axis in layout]
        padded = self.constant(np.pad(values, widths), str(weight.ty.dtype))
        wide = self.emit(self.relax.Call(call.op, [x, padded], call.attrs, call.ty_args))
        cut = self.relax.op.strided_slice(wide, [out.index("C")], [0], [filters])
        return self.emit(cut)

    # -- products -------------------------------------------------------------------------

    def _equal_products(self, bindings: Sequence[Any]) -> dict[Any, list[Any]]:
        groups: dict[Any, list[Any]] = defaultdict(list)
        for binding in bindings:
            call = binding.value
            if name_of(call) != "relax.matmul" or not self.is_constant(call.args[1]):
                continue
            shape = tuple(int(extent) for extent in call.args[1].ty.shape)
            if len(shape) == 2 and isinstance(call.args[0], self.relax.Var):
                groups[call.args[0], shape, str(call.ty.dtype)].append(call)
        enough = [group for group in groups.values() if len(group) >= _FEWEST_PRODUCTS]
        return {call: group for group in enough for call in group}

    def product(self, call: Any, arguments: list[Any]) -> Any:
        group = self.together.get(call)
        if group is None:
            return None
        weights = [one.args[1].value.numpy() for one in group]
        width, last = weights[0].shape[1], len(call.ty.shape) - 1
        if group[0] not in self.wide:
            joined = self.constant(np.concatenate(weights, 1), str(group[0].args[1].ty.dtype))
            operands = [arguments[0], joined]
            self.wide[group[0]] = self.emit(
                self.relax.Call(call.op, operands, call.attrs, call.ty_args)
            )
        at = group.index(call) * width
        cut = self.relax.op.strided_slice(self.wide[group[0]], [last], [at], [at + width])
        return self.emit(cut)


def _channels(part: Any, call: Any) -> int:
    return int(part.ty.shape[str(call.attrs.data_layout).index("C")])
