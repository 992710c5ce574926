"""TIR expressions as numpy: every node evaluated at once on a box of iteration points.

A box of `n` iteration variables is an open grid: variable `k` is an array of shape
`(1, ..., extent_k, ..., 1)`, so an expression only grows along the axes it really uses. Nodes are
distinguished by class name: nothing here imports TVM, let alone its code generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorese.errors import TensoreseError

Array = npt.NDArray[Any]
Box = tuple[tuple[int, int], ...]
"""Half-open bounds of every iteration variable of a block, in the block's order."""


class Unsupported(TensoreseError):
    """The program says something the reference does not know; the caller runs TVM instead."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the reference evaluates plain blocks of known nodes only, but got {what}; "
            "check against the unscheduled program instead"
        )


def np_dtype(name: str) -> np.dtype[Any]:
    """numpy's type for a TVM type name; bfloat16 and float8 need ml_dtypes."""
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes

        custom: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return custom
    except (ImportError, AttributeError) as error:
        raise Unsupported(f"dtype {name}") from error


def _truncating_divide(a: Array, b: Array) -> Array:
    if np.issubdtype(np.result_type(a), np.integer):
        return np.asarray((a - np.fmod(a, b)) // b)
    return np.asarray(np.true_divide(a, b))


def _erf(x: Array) -> Array:
    # numpy has none; the C library's, element by element, costs 60 ns and is exact to the ulp.
    return np.fromiter(map(math.erf, x.ravel().tolist()), np.float64, x.size).reshape(x.shape)


_BINARY: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": _truncating_divide,
    "Mod": np.fmod,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.mod,
    "Min": np.minimum,
    "Max": np.maximum,
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
    "LShift": np.left_shift,
    "RShift": np.right_shift,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
}
_UNARY: dict[str, Callable[..., Any]] = {"Not": np.logical_not, "BitwiseNot": np.invert}
_CALLS: dict[str, Callable[..., Any]] = {
    "exp2": np.exp2,
    "exp10": lambda x: np.power(10.0, x),
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "erf": _erf,
    "round": np.rint,  # ties to even, as TVM documents and its LLVM code does
    "nearbyint": np.rint,
    "pow": np.power,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "asin": np.arcsin,
    "acos": np.arccos,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
}
_CALLS |= {
    name: getattr(np, name)
    for name in "exp log log2 log10 log1p tanh sqrt sin cos tan sinh cosh floor ceil trunc fabs "
    "fmod hypot copysign isnan isinf isfinite".split()
}


def children(node: Any) -> Iterator[Any]:
    """The expressions directly inside one."""
    for field in ("a", "b", "condition", "true_value", "false_value", "value", "body"):
        child = getattr(node, field, None)
        if child is not None and hasattr(child, "ty"):
            yield child
    kind = type(node).__name__
    if kind == "TensorLoad":
        yield from node.indices
    elif kind == "Call":
        yield from node.args


class Expressions:
    """Evaluates expressions over one box, reading `buffers`."""

    def __init__(self, buffers: dict[Any, Array], variables: Sequence[Any], box: Box) -> None:
        self.buffers = buffers
        self.shape = tuple(stop - start for start, stop in box)
        self.values: dict[Any, Array] = {}
        self._guards = 0  # inside a conditional, an index may leave its buffer unread
        for axis, (variable, (start, stop)) in enumerate(zip(variables, box, strict=True)):
            grid = [1] * len(box)
            grid[axis] = stop - start
            points = np.arange(start, stop, dtype=np_dtype(str(variable.ty)))
            self.values[variable] = points.reshape(grid)

    def __call__(self, node: Any) -> Array:
        kind = type(node).__name__
        if kind in _BINARY:
            return np.asarray(_BINARY[kind](self(node.a), self(node.b)))
        if kind in _UNARY:
            return np.asarray(_UNARY[kind](self(node.a)))
        if kind == "TensorLoad":
            return self.load(self._buffer(node.source), node.indices)
        if kind == "Var":
            if node not in self.values:
                raise Unsupported(f"free variable {node.name}")
            return self.values[node]
        if kind in ("IntImm", "FloatImm"):
            return np.asarray(node.value, dtype=np_dtype(str(node.ty)))
        if kind == "Cast":
            return self(node.value).astype(np_dtype(str(node.ty)))
        if kind == "Select":
            return self._choose(node.condition, node.true_value, node.false_value)
        if kind == "Let":
            self.values[node.var] = self(node.value)
            return self(node.body)
        if kind == "Call":
            return self._call(node)
        raise Unsupported(f"expression node {kind}")

    def _call(self, node: Any) -> Array:
        name = str(getattr(node.op, "name", node.op)).rpartition(".")[2]
        if name == "if_then_else":
            return self._choose(*node.args)
        if name == "likely":
            return self(node.args[0])
        if name not in _CALLS:
            raise Unsupported(f"intrinsic {name}")
        # Intrinsics in float64: a reference should be better than what it judges.
        args = [self(arg) for arg in node.args]
        wide = [a if np.issubdtype(a.dtype, np.integer) else a.astype(np.float64) for a in args]
        return np.asarray(_CALLS[name](*wide)).astype(np_dtype(str(node.ty)))

    def _choose(self, condition: Any, yes: Any, no: Any) -> Array:
        chosen = self(condition)
        self._guards += 1
        try:
            return np.where(chosen, self(yes), self(no))
        finally:
            self._guards -= 1

    def _buffer(self, source: Any) -> Array:
        if source not in self.buffers:
            raise Unsupported(f"a read of {source.name} before it is written")
        return self.buffers[source]

    def load(self, array: Array, indices: Sequence[Any]) -> Array:
        """A strided view where the indices are affine on this box, else a gathered copy."""
        at = [self(index) for index in indices]
        view = affine_view(array, at, len(self.shape))
        if view is not None:
            return view
        inside = [np.clip(i, 0, n - 1) for i, n in zip(at, array.shape, strict=True)]
        if not self._guards and any(np.any(i != c) for i, c in zip(at, inside, strict=True)):
            raise Unsupported("an index outside its buffer")
        return np.asarray(array[tuple(inside)])

    def store(self, array: Array, indices: Sequence[Any], value: Array) -> None:
        at = [self(index) for index in indices]
        if any(i.min() < 0 or i.max() >= n for i, n in zip(at, array.shape, strict=True)):
            raise Unsupported("a store outside its buffer")
        view = affine_view(array, at, len(self.shape))
        try:
            if view is None:
                array[tuple(np.broadcast_arrays(*at))] = value
            else:
                view[...] = value
        except ValueError as error:  # more values than places: the order would decide
            raise Unsupported("a store that several iterations race for") from error


def affine_view(array: Array, indices: Sequence[Array], ndim: int) -> Array | None:
    """`array[indices]` without a copy, or None if an index is not affine or leaves the array.

    Affinity is tested on the numbers, not on the syntax: `c // 64` is affine (a constant) on a
    box that stays inside one group. Axes that no index depends on come out with extent 1.
    """
    shape, strides = [1] * ndim, [0] * ndim
    start: list[Any] = []
    for dim, index in enumerate(indices):
        points = index.reshape((1,) * (ndim - index.ndim) + index.shape)
        origin = int(points.flat[0])
        if points.min() < 0 or points.max() >= array.shape[dim]:
            return None
        line: Any = origin
        for axis, extent in enumerate(points.shape):
            if extent == 1:
                continue
            step = int(points[(0,) * axis + (1,) + (0,) * (ndim - axis - 1)]) - origin
            grid = [1] * ndim
            grid[axis] = extent
            line = line + step * np.arange(extent).reshape(grid)
            if step:
                shape[axis] = extent
                strides[axis] += step * array.strides[dim]
        if not np.array_equal(np.broadcast_to(line, points.shape), points):
            return None
        start.append(slice(origin, None))
    return np.lib.stride_tricks.as_strided(array[(*start, ...)], shape, strides)
