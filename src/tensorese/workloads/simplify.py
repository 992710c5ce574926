"""Rewrites a Relax graph for inference where TVM's own passes do not: batch norm into weights.

TVM decomposes a batch norm into five elementwise operators and leaves them beside the
convolution, and its constant folder compiles a kernel for every shape. Here both are numpy.
The graph is a straight line of bindings, so one walk over it is enough.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from tensorese.tvm_env import import_tvm
from tensorese.workloads.affine import Affine, name_of


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
    "relax.broadcast_to": lambda call, x: np.broadcast_to(x, _shape(call)),
    "relax.add": lambda call, x, y: x + y,
    "relax.multiply": lambda call, x, y: x * y,
    "relax.subtract": lambda call, x, y: x - y,
    "relax.less": lambda call, x, y: x < y,
    "relax.less_equal": lambda call, x, y: x <= y,
    "relax.greater": lambda call, x, y: x > y,
    "relax.greater_equal": lambda call, x, y: x >= y,
    "relax.where": lambda call, condition, x, y: np.where(condition, x, y),
}
_MOST_MADE = 1 << 24  # elements of a filled or counted tensor worth computing here


def simplify(module: Any) -> Any:
    """Batch norms folded, re-layouts of constants computed, clips as minimum and maximum."""
    return rewritten(module, NetworkRewriter)


def rewritten(module: Any, rules: Callable[[Any, list[Any], Any], NetworkRewriter]) -> Any:
    """One walk over `main` with the rules of a `NetworkRewriter`.

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
    rewriter = rules(relax, bindings, function.body.body)
    builder = rewriter.builder
    with builder.function("main", list(function.params), attrs=dict(function.attrs or {})):
        with builder.dataflow():
            for binding in bindings:
                rewriter.bind(binding.var, rewriter.rewrite(binding.value))
            output = builder.emit_output(rewriter.current(function.body.body))
        builder.emit_func_output(output)
    # The importer brings functions along that `main` calls: an operator that Relax lacks.
    others = {gv: f for gv, f in module.functions_items() if gv.name_hint != "main"}
    done = import_tvm().IRModule({**dict(builder.get().functions_items()), **others})
    return relax.transform.DeadCodeElimination()(relax.transform.CanonicalizeBindings()(done))


class NetworkRewriter(Affine):
    """One rule an operator; anything else is emitted as it is, over the new variables."""

    def __init__(self, relax: Any, bindings: list[Any], output: Any) -> None:
        super().__init__(relax)
        self.uses = self._count_uses([*(binding.value for binding in bindings), output])
        self.made: dict[Any, Any] = {}
        """New variable to its elements: filled and counted tensors, constant where constants are
        joined with them (an attention mask), literals in a kernel elsewhere."""
        self.rules: dict[str, Callable[[Any, list[Any]], Any]] = {
            "relax.nn.batch_norm": self.batch_norm,
            "relax.nn.dropout": lambda call, args: relax.Tuple([args[0], args[0]]),
            "relax.nn.avg_pool2d": self.pool_of_all,
            "relax.nn.max_pool2d": self.pool_of_all,
            "relax.clip": self.clip,
            "relax.power": self.power,
            "relax.take": self.take,
            "relax.broadcast_to": self.broadcast_to,
            "relax.sum": self.sum,
            "relax.full": self.full,
            "relax.arange": self.arange,
            "relax.add": self.add_or_multiply,
            "relax.multiply": self.add_or_multiply,
        }

    def _count_uses(self, values: list[Any]) -> Counter[Any]:
        uses: Counter[Any] = Counter()
        for value in values:
            self.relax.analysis.post_order_visit(
                value, lambda e: uses.update([e]) if isinstance(e, self.relax.Var) else None
            )
        return uses

    def bind(self, old: Any, new: Any) -> None:
        self.values[old] = new
        if isinstance(new, self.relax.Var):
            # A second name of the same variable: its binding was one of the uses counted.
            known = self.readers.get(new)
            self.readers[new] = self.uses[old] if known is None else known + self.uses[old] - 1

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
        for rule in (self.fold, self.rules.get(name_of(value)), self.as_it_is):
            if rule is not None and (made := rule(value, arguments)) is not None:
                return made
        raise AssertionError("unreachable: the last rule always makes something")

    def as_it_is(self, call: Any, arguments: list[Any]) -> Any:
        return self.emit(self.relax.Call(call.op, arguments, call.attrs, call.ty_args))

    def fold(self, call: Any, arguments: list[Any]) -> Any:
        name = name_of(call)
        # The second argument of these two is a shape.
        first_only = name in ("relax.reshape", "relax.broadcast_to")
        tensors = arguments[:1] if first_only else arguments
        if name not in _FOLDS:
            return None
        arrays = [self.elements(tensor) for tensor in tensors]
        if any(array is None for array in arrays):
            return None
        return self.constant(_FOLDS[name](call, *arrays), str(call.ty.dtype))

    def elements(self, value: Any) -> Any:
        """The array behind a constant, or behind what is as good as one; else None."""
        if self.is_constant(value):
            return value.value.numpy()
        return self.made.get(value) if isinstance(value, self.relax.Var) else None

    def full(self, call: Any, arguments: list[Any]) -> Any:
        fill = arguments[1]
        if not self.is_constant(fill) or math.prod(_shape(call)) > _MOST_MADE:
            return None
        var = self.as_it_is(call, arguments)
        self.made[var] = np.full(_shape(call), fill.value.numpy(), str(call.ty.dtype))
        return var

    def arange(self, call: Any, arguments: list[Any]) -> Any:
        bounds: list[Any] = [getattr(argument, "value", None) for argument in arguments]
        bounds = [getattr(bound, "value", bound) for bound in bounds]
        if not all(isinstance(b, int | float) for b in bounds) or _shape(call)[0] > _MOST_MADE:
            return None
        var = self.as_it_is(call, arguments)
        self.made[var] = np.arange(*bounds, dtype=str(call.ty.dtype))
        return var

    def batch_norm(self, call: Any, arguments: list[Any]) -> Any:
        if not all(map(self.is_constant, arguments[1:5])):
            return None
        gamma, beta, mean, variance = (a.value.numpy().astype("float64") for a in arguments[1:5])
        scale = gamma / np.sqrt(variance + float(call.attrs.epsilon))
        aside = [1] * len(call.args[0].ty.shape)
        aside[int(call.attrs.axis)] = -1
        shift = (beta - mean * scale).reshape(aside)
        normed = self.affine(arguments[0], scale.reshape(aside), shift)
        return self.relax.Tuple([normed, arguments[3], arguments[4]])

    def pool_of_all(self, call: Any, arguments: list[Any]) -> Any:
        """A window larger than its unpadded input reads no more than that (a window of as many
        rows as there are channels, say); TVM would walk over all of it."""
        attrs, shape = call.attrs, _shape(call.args[0])
        extents = [shape[str(attrs.layout).index(axis)] for axis in "HW"]
        window = [int(extent) for extent in attrs.pool_size]
        plain = not any(map(int, attrs.padding)) and all(int(d) == 1 for d in attrs.dilation)
        if not plain or all(map(int.__le__, window, extents)):
            return None
        # One window needs no stride; TVM would pad by it where it rounds up.
        strides = [
            int(stride) if size < extent else 1
            for stride, size, extent in zip(attrs.strides, window, extents, strict=True)
        ]
        made = self.emit(
            getattr(self.relax.op.nn, name_of(call).rpartition(".")[2])(
                arguments[0],
                pool_size=[min(pair) for pair in zip(window, extents, strict=True)],
                strides=strides,
                ceil_mode=bool(attrs.ceil_mode),
                count_include_pad=bool(attrs.count_include_pad),
                layout=str(attrs.layout),
                out_layout=str(attrs.out_layout),
            )
        )
        return made if _shape(made) == _shape(call) else None

    def add_or_multiply(self, call: Any, arguments: list[Any]) -> Any:
        """Joins a constant term or factor with what is before it: a Caffe scale layer, say."""
        left, right = arguments
        x, constant = (right, left) if self.is_constant(left) else (left, right)
        rank = len(call.ty.shape)
        if not self.is_constant(constant) or len(x.ty.shape) != rank or rank < 4:
            return None
        array = constant.value.numpy().astype("float64")
        # At full rank, TVM can carry the constant through a change of layout.
        array = array.reshape((1,) * (rank - array.ndim) + array.shape)
        if array.size == 1:
            return None
        if name_of(call) == "relax.add":
            return self.affine(x, np.ones([1] * rank), array)
        return self.affine(x, array, np.zeros([1] * rank))

    def clip(self, call: Any, arguments: list[Any]) -> Any:
        """TVM carries minimum and maximum through a change of layout, but not a clip."""
        x, low, high = arguments[0], float(arguments[1].value), float(arguments[2].value)
        dtype = str(call.ty.dtype)
        if low > -math.inf:
            x = self.emit(self.relax.op.maximum(x, self.relax.const(low, dtype)))
        if high < math.inf:
            x = self.emit(self.relax.op.minimum(x, self.relax.const(high, dtype)))
        return x

    def power(self, call: Any, arguments: list[Any]) -> Any:
        """A square is one multiplication, not a call of the C library's pow."""
        x, exponent = arguments
        if not self.is_constant(exponent) or not np.all(exponent.value.numpy() == 2):
            return None
        same = _shape(call) == tuple(int(extent) for extent in x.ty.shape)
        return self.emit(self.relax.op.multiply(x, x)) if same else None

    def take(self, call: Any, arguments: list[Any]) -> Any:
        """As imported, an index out of range would read foreign memory."""
        if str(call.attrs.mode) != "fast":
            return None
        axis = None if call.attrs.axis is None else int(call.attrs.axis)
        return self.emit(self.relax.op.take(arguments[0], arguments[1], axis, mode="clip"))

    def broadcast_to(self, call: Any, arguments: list[Any]) -> Any:
        return arguments[0] if _shape(call) == _shape(call.args[0]) else None

    def sum(self, call: Any, arguments: list[Any]) -> Any:
        """The sum of a stack is a chain of additions: how ONNX's Sum arrives."""
        stack: Any = self.made_by.get(arguments[0])
        axes = [int(axis) for axis in call.attrs.axis or []]
        if name_of(stack) != "relax.stack" or axes != [0] or call.attrs.keepdims:
            return None
        if int(stack.attrs.axis or 0) != 0:
            return None
        terms = stack.args[0].fields
        return functools.reduce(lambda x, y: self.emit(self.relax.op.add(x, y)), terms)
