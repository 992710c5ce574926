"""softmax(scale * q k^T + mask) v as one kernel, where that is faster than one operator by one.

Computed operator by operator, the scores of every head are written and read several times. The
kernel (`attention_kernels.py`) keeps those of a few rows at a time. Which is faster is estimated
here from the shapes; `tune` measures both where the estimate is not sure (`either_way.py`).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from tensorese.tvm_env import import_tvm
from tensorese.workloads.affine import name_of
from tensorese.workloads.attention_kernels import KERNEL, Tiles, attention_kernel, tiles, vectors_of
from tensorese.workloads.choice import Choice, Key
from tensorese.workloads.simplify import NetworkRewriter, rewritten

# How many multiply-adds of a good kernel take as long as one exponential, and at least as writing
# and reading one score between operators. Of tuned kernels on two AVX-512 cores, 197 to 1500 rows.
_PER_EXP = 16.0
_PER_SCORE = 48.0
_WORTH = 0.85
"""Of the cost operator by operator: an estimate this much lower is acted upon."""
# An exported `safe` softmax: zero where a row sees no key, which is found out in these steps.
_SEES_NOTHING = (
    *("relax.logical_not", "relax.astype", "relax.max", "relax.astype", "relax.logical_not"),
    "relax.equal",
)


def fused(key: Key) -> int:
    """1 where one kernel is clearly cheaper, else 0."""
    costs = estimates(key)
    return int(costs[1] < _WORTH * costs[0])


def estimates(key: Key) -> dict[int, float]:
    """The cost operator by operator (0) and as one kernel (1), in multiply-adds."""
    heads, queries, keys, dim, width, *_ = key
    scores = heads * queries * keys
    tiled = tiles(queries, keys, width, lanes=16, registers=32)
    rows = tiled.rows if tiled else 1
    waste = -(-queries // rows) * rows / queries
    products = scores * (dim + width)
    return {
        0: products + scores * (_PER_EXP + _PER_SCORE),
        1: waste * (products + scores * _PER_EXP),
    }


def attention(module: Any, choice: Choice) -> Any:
    """The module with attention as one kernel where it is so chosen."""
    asked = choice.asked.total()
    vectors = vectors_of(import_tvm().target.Target.current())
    made = rewritten(module, partial(Attention, choice, vectors))
    # Programs name blocks, and these are numbered anew even where nothing was found.
    return made if choice.asked.total() > asked else module


class Attention(NetworkRewriter):
    def __init__(
        self, choice: Choice, vectors: tuple[int, int], relax: Any, bindings: list[Any], output: Any
    ) -> None:
        super().__init__(relax, bindings, output)
        self.choice = choice
        self.lanes, self.registers = vectors
        self.rules = {"relax.matmul": self.product}

    def product(self, call: Any, arguments: list[Any]) -> Any:
        """The last product of an attention, or None."""
        weights, value = arguments
        softmax, safe = self._softmax(weights)
        if softmax is None:
            return None
        scores, scale, mask = self._scaled(softmax.args[0])
        inner: Any = self.made_by.get(scores)
        if name_of(inner) != "relax.matmul":
            return None
        (query, more), (turned, still_more) = map(self._factor, inner.args)
        tensors = (query, turned, value)
        shapes = [_extents(one) for one in tensors]
        whole = all(str(one.ty.dtype) == "float32" for one in (*tensors, call))
        tiled = self._tiles(shapes) if whole else None
        if tiled is None or not (mask is None or _fits(mask, scores)):
            return None
        (*heads, queries, dim), (*_, keys), (*_, width) = shapes
        key = (math.prod(heads), queries, keys, dim, width, int(mask is not None))
        self.choice.asked[key] += 1
        if not self.choice.way(key, fused(key)):
            return None
        operands = [query, self._swapped(turned), value]
        if mask is not None:
            operands.append(self._mask(mask, len(shapes[0])))
        q, k, v, *masks = map(_extents, operands)
        kernel = attention_kernel(
            q,
            k,
            v,
            masks[0] if masks else None,
            scale=scale * more * still_more,
            safe=safe,
            tiled=tiled,
        )
        function = self.builder.add_func(kernel.without_attr("global_symbol"), KERNEL)
        return self.emit(self.relax.call_tir(function, operands, call.ty))

    def _tiles(self, shapes: list[list[int]]) -> Tiles | None:
        """None for shapes that the kernel is not for."""
        (*heads, queries, _), (*others, _, keys), (*more, rows, width) = shapes
        if not heads or not heads == others == more or rows != keys:
            return None
        return tiles(queries, keys, width, lanes=self.lanes, registers=self.registers)

    # -- what came before -----------------------------------------------------------------

    def _softmax(self, weights: Any) -> tuple[Any, bool]:
        """The call of a softmax along keys that nothing else reads, and whether rows that see no
        key are zero."""
        call: Any = self.made_by.get(weights)
        safe = name_of(call) == "relax.where"
        softmax: Any = self.made_by.get(call.args[2]) if safe else call
        if name_of(softmax) != "relax.nn.softmax" or self.readers.get(weights, 1) != 1:
            return None, False
        if int(softmax.attrs.axis) not in (-1, len(softmax.ty.shape) - 1):
            return None, False
        if safe and not (self._is_zero(call.args[1]) and self._unseen(call.args[0], softmax)):
            return None, False
        return softmax, safe

    def _unseen(self, rows: Any, softmax: Any) -> bool:
        """Whether these are the rows all of whose scores are -inf."""
        call: Any = None
        for name in _SEES_NOTHING:
            call = self.made_by.get(rows)
            if name_of(call) != name:
                return False
            if name == "relax.max" and [int(a) for a in call.attrs.axis] != [
                len(softmax.ty.shape) - 1
            ]:
                return False
            rows = call.args[0]
        return bool(rows.same_as(softmax.args[0]) and self._number(call.args[1]) == -math.inf)

    def _is_zero(self, value: Any) -> bool:
        call: Any = self.made_by.get(value) if isinstance(value, self.relax.Var) else None
        filled = name_of(call) in ("relax.full", "relax.full_like")
        return self._number(call.args[1] if filled else value) == 0

    def _number(self, value: Any) -> float | None:
        """Of a constant with one element."""
        array = value.value.numpy() if self.is_constant(value) else None
        return float(array.item()) if array is not None and array.size == 1 else None

    def _scaled(self, scores: Any) -> tuple[Any, float, Any]:
        """What a mask is added to and a scale multiplied with, the scale, the mask or None."""
        call: Any = self.made_by.get(scores)
        if name_of(call) == "relax.add":
            for x, mask in (call.args, reversed(call.args)):
                product, scale = self._factor(x)
                if name_of(self.made_by.get(product)) == "relax.matmul":
                    return product, scale, mask
        return *self._factor(scores), None

    def _factor(self, x: Any) -> tuple[Any, float]:
        scale = 1.0
        while (name := name_of(self.made_by.get(x))) in ("relax.divide", "relax.multiply"):
            left, right = self.made_by[x].args
            if name == "relax.multiply" and self._number(left) is not None:
                left, right = right, left
            number = self._number(right)
            if not number or _extents(left) != _extents(x):
                break
            x, scale = left, scale * number if name == "relax.multiply" else scale / number
        return x, scale

    # -- operands. Names of their own: programs of other kernels name numbered variables. ----------

    def _swapped(self, turned: Any) -> Any:
        """Keys as rows."""
        call: Any = self.made_by.get(turned)
        axes = list(range(len(turned.ty.shape)))
        swap = [*axes[:-2], axes[-1], axes[-2]]
        if name_of(call) == "relax.permute_dims":
            before = axes[::-1] if call.attrs.axes is None else [int(a) for a in call.attrs.axes]
            turned, swap = call.args[0], [before[axis] for axis in swap]
        if swap == axes:
            return turned
        return self._named(self.relax.op.permute_dims(turned, swap))

    def _mask(self, mask: Any, rank: int) -> Any:
        """Of full rank, keys before queries as the kernel has its scores."""
        extents = _extents(mask)
        shape = [1] * (rank - len(extents)) + extents
        swap = [*range(rank - 2), rank - 1, rank - 2]
        if self.is_constant(mask):
            return self.constant(mask.value.numpy().reshape(shape).transpose(swap), "float32")
        if len(extents) != rank:
            mask = self._named(self.relax.op.reshape(mask, shape))
        return self._named(self.relax.op.permute_dims(mask, swap))

    def _named(self, value: Any) -> Any:
        return self.builder.emit(value, KERNEL)


def _extents(value: Any) -> list[int]:
    return [int(extent) for extent in value.ty.shape]


def _fits(mask: Any, scores: Any) -> bool:
    """Whether the mask, in float32, is broadcast to the scores and not they to it."""
    extents, whole = _extents(mask), _extents(scores)
    pairs = zip(reversed(extents), reversed(whole), strict=False)
    return (
        len(extents) <= len(whole)
        and all(extent in (1, n) for extent, n in pairs)
        and str(mask.ty.dtype) == "float32"
    )
