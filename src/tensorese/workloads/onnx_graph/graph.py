"""One walk over a graph whose input shapes are fixed: what is constant is computed on the way.

The walk knows the type of every value and the elements of constant ones. A node is then dropped,
computed, decided (`If`), unrolled (`Loop`), rewritten by a rule, or kept; what a rule makes goes
through the same walk, so a rule may be written as if nothing were constant.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorese.workloads.errors import NetworkError, first_line

Array = NDArray[Any]
_MOST_COMPUTED = 1 << 26  # elements of a constant worth storing
_DATA = 1 << 12  # elements of a constant that a shape may depend on
_RANDOM = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}


class ShapeClash(NetworkError):
    """The shapes that were chosen do not fit the network."""


class Undecided(NetworkError):
    """A branch or a count that depends on the value of inputs."""

    def __init__(self, message: str, inputs: Mapping[str, float]) -> None:
        super().__init__(message)
        self.inputs = dict(inputs)


@dataclass(frozen=True, kw_only=True)
class Node:
    """A call as rules see it: values by name, "" for an absent input."""

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: int
    used: tuple[bool, ...]
    """Whether anything may read that output."""
    attributes: Mapping[str, Any]

    def input(self, index: int) -> str:
        return self.inputs[index] if index < len(self.inputs) else ""

    def get(self, name: str, default: Any = None) -> Any:
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value


Rule = Callable[["Graph", Node], "Sequence[str] | None"]
"""The values that hold a node's outputs; None where the rule does not apply."""
Rules = Mapping[tuple[str, str], Sequence[Rule]]
"""By domain and operator, tried in order."""
Control = Mapping[str, Callable[["Graph", Node, Mapping[str, str]], Sequence[str]]]
"""Control flow, which walks subgraphs: they read the names around them."""


class Graph:
    """The graph that is being written, and everything known about its values."""

    def __init__(
        self, opsets: Mapping[str, int], ir_version: int, rules: Rules, control: Control
    ) -> None:
        import onnx
        import onnx.shape_inference

        self.onnx = onnx
        self.opsets = dict(opsets)
        self.ir_version = ir_version
        self.rules = rules
        self.control = control
        self.nodes: list[Any] = []
        self.values: dict[str, Array] = {}
        self.types: dict[str, Any] = {}
        self.inputs: list[str] = []
        self.real: dict[str, Any] = {}
        """Quantised values to what they stand for, in float (`quantised.py`)."""
        self.notes: dict[str, None] = {}
        self._made = 0
        self._opset_imports = [onnx.helper.make_opsetid(d, v) for d, v in self.opsets.items()]

    @property
    def opset(self) -> int:
        return self.opsets.get("", 1)

    # -- what is known ----------------------------------------------------------------------

    def value(self, name: str) -> Array | None:
        return self.values.get(name)

    def known(self, name: str) -> Array:
        value = self.values.get(name)
        if value is None:
            raise ValueError(f"{name!r} is not constant")
        return value

    def shape(self, name: str) -> tuple[int, ...]:
        if name in self.values:
            return tuple(self.values[name].shape)
        extents = self.extents(name)
        if extents is None or any(extent is None for extent in extents):
            raise ValueError(f"the shape of {name!r} is not known")
        return tuple(int(extent) for extent in extents if extent is not None)

    def extents(self, name: str) -> list[int | None] | None:
        """Extents as far as they are known; None where not even the rank is."""
        kind = self.types.get(name)
        if kind is None or not kind.tensor_type.HasField("shape"):
            return None
        return [
            int(dim.dim_value) if dim.HasField("dim_value") else None
            for dim in kind.tensor_type.shape.dim
        ]

    def dtype(self, name: str) -> np.dtype[Any]:
        if name in self.values:
            return self.values[name].dtype
        kind = self.types.get(name)
        if kind is None or not kind.tensor_type.elem_type:
            raise ValueError(f"the type of {name!r} is not known")
        dtype: np.dtype[Any] = self.onnx.helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type)
        return dtype

    # -- what rules make --------------------------------------------------------------------

    def fresh(self, hint: str) -> str:
        self._made += 1
        return f"{hint}__{self._made}"

    def note(self, text: str) -> None:
        self.notes[text] = None

    def const(self, array: Any, dtype: Any = None) -> str:
        name = self.fresh("const")
        self.values[name] = np.asarray(array, dtype)
        return name

    def like(self, number: float, name: str) -> str:
        """A constant scalar of another value's type."""
        return self.const(number, self.dtype(name))

    def ops(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> list[str]:
        attributes = {key: value for key, value in attributes.items() if value is not None}
        names = [self.fresh(op.lower()) for _ in range(outputs)]
        node = self.onnx.helper.make_node(op, list(inputs), names, **attributes)
        return self.visit(node, {})

    def op(self, op: str, *inputs: str, **attributes: Any) -> str:
        return self.ops(op, *inputs, **attributes)[0]

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        if self.shape(x) == tuple(shape):
            return x
        return self.op("Reshape", x, self.const(list(shape), np.int64))

    def cut(self, x: str, axis: int, start: int, stop: int, step: int = 1) -> str:
        """x[start:stop:step] along one axis."""
        if self.opset < 10:
            return self.op("Slice", x, axes=[axis], starts=[start], ends=[stop])
        bounds = [self.const([one], np.int64) for one in (start, stop, axis, step)]
        return self.op("Slice", x, *bounds)

    def split(self, x: str, axis: int, parts: int) -> list[str]:
        """Equal parts along one axis."""
        if parts == 1:
            return [x]
        sizes = [self.shape(x)[axis] // parts] * parts
        if self.opset < 13:
            return self.ops("Split", x, outputs=parts, axis=axis, split=sizes)
        return self.ops("Split", x, self.const(sizes, np.int64), outputs=parts, axis=axis)

    def cast(self, x: str, dtype: Any) -> str:
        if self.dtype(x) == np.dtype(dtype):
            return x
        return self.op("Cast", x, to=self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    # -- the walk ---------------------------------------------------------------------------

    def walk(
        self, nodes: Sequence[Any], scope: Mapping[str, str], read: set[str]
    ) -> dict[str, str]:
        """The names that a list of nodes gives to values, beside those of `scope`.

        `read` are the names somebody reads after the list: a subgraph's results.
        """
        names = dict(scope)
        inside = {name for node in nodes for name in _reads(node)} | read
        for node in nodes:
            made = self.visit(node, names, [name in inside for name in node.output])
            names.update((name, value) for name, value in zip(node.output, made, strict=False))
        return names

    def visit(
        self, node: Any, scope: Mapping[str, str], used: Sequence[bool] | None = None
    ) -> list[str]:
        """The values that hold a node's outputs."""
        used = [bool(n) for n in node.output] if used is None else used
        call = Node(
            op=str(node.op_type),
            domain="" if node.domain == "ai.onnx" else str(node.domain),
            name=str(node.name),
            inputs=tuple(scope.get(name, name) for name in node.input),
            outputs=len(node.output),
            used=tuple(bool(u and n) for u, n in zip(used, node.output, strict=True)),
            attributes={
                a.name: self.onnx.helper.get_attribute_value(a)
                for a in node.attribute
                if not a.ref_attr_name
            },
        )
        control = self.control.get(call.op)
        if control is not None:
            return list(control(self, call, scope))
        computed = self._computed(call)
        if computed is not None:
            return computed
        return self._rewritten(call) or self.keep(call)

    def _computed(self, call: Node) -> list[str] | None:
        """The outputs of a node whose inputs are all constant."""
        if call.domain or call.op in _RANDOM or call.op.startswith(("Sequence", "Optional")):
            return None
        if not all(name in self.values for name in call.inputs if name):
            return None
        outputs = self._evaluate(call)
        return None if outputs is None else [self.const(output) for output in outputs]

    def _evaluate(self, call: Node) -> list[Array] | None:
        if call.op == "Constant":
            return _constant(self.onnx, call)
        inferred = self._inferred(call, strict=False)
        sizes = [_size(kind) for kind in inferred]
        if any(size is not None and size > _MOST_COMPUTED for size in sizes):
            return None
        from onnx.reference import ReferenceEvaluator

        make = self.onnx.helper
        inputs = [name for name in dict.fromkeys(call.inputs) if name]
        node = self._proto(call, call.inputs, [f"y{i}" for i in range(call.outputs)])
        graph = make.make_graph(
            [node],
            "constant",
            [make.make_value_info(name, self._type_of(name)) for name in inputs],
            [make.make_value_info(name, self.onnx.TypeProto()) for name in node.output],
        )
        model = make.make_model(
            graph, opset_imports=self._opset_imports, ir_version=self.ir_version
        )
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                made = ReferenceEvaluator(model).run(None, {n: self.values[n] for n in inputs})
        except Exception:  # what the evaluator lacks is computed by the network
            return None
        arrays = [np.asarray(array) for array in made]
        if any(array.dtype == object for array in arrays):
            return None
        return [_as_inferred(self.onnx, a, k) for a, k in zip(arrays, inferred, strict=True)]

    def _rewritten(self, call: Node) -> list[str] | None:
        for rule in self.rules.get((call.domain, call.op), ()):
            try:
                made = rule(self, call)
            except NetworkError:
                raise
            except Exception as error:
                self.note(f"{call.op} stays as it is, rewriting it failed: {first_line(error)}")
                continue
            if made is not None:
                return list(made)
        return None

    def keep(self, call: Node) -> list[str]:
        """The node as it is, its outputs' types inferred."""
        if call.domain:
            raise NetworkError(
                f"operators must be ONNX's own, but {call.op} is of domain {call.domain!r}; "
                "export the model without it"
            )
        outputs = [self.fresh(call.op.lower()) if used else "" for used in call.used]
        while outputs and not outputs[-1]:
            outputs.pop()
        kinds = self._inferred(call, strict=True)
        self.nodes.append(self._proto(call, call.inputs, outputs))
        for name, kind in zip(outputs, kinds, strict=False):
            if name and kind is not None:
                self.types[name] = kind
        return outputs + [""] * (call.outputs - len(outputs))

    def _proto(self, call: Node, inputs: Sequence[str], outputs: Sequence[str]) -> Any:
        return self.onnx.helper.make_node(
            call.op, list(inputs), list(outputs), call.name or None, **dict(call.attributes)
        )

    def _type_of(self, name: str) -> Any:
        if name in self.values:
            return _type_of_array(self.onnx, self.values[name])
        return self.types[name]

    def _inferred(self, call: Node, *, strict: bool) -> list[Any]:
        """The types of a node's outputs, None where they are not known."""
        inputs = [name for name in dict.fromkeys(call.inputs) if name]
        outputs = [f"y{i}" for i in range(call.outputs)]
        kinds = {n: self._type_of(n) for n in inputs if n in self.values or n in self.types}
        data = {
            name: self.onnx.numpy_helper.from_array(self.values[name], name)
            for name in inputs
            if name in self.values and self.values[name].size <= _DATA
        }
        if len(kinds) < len(inputs):
            return [None] * call.outputs
        try:
            schema = self.onnx.defs.get_schema(call.op, self.opset, "")
            types = self.onnx.shape_inference.infer_node_outputs(
                schema,
                self._proto(call, call.inputs, outputs),
                kinds,
                data,
                opset_imports=self._opset_imports,
                ir_version=self.ir_version,
            )
        except self.onnx.defs.SchemaError:
            return [None] * call.outputs
        except Exception as error:
            if not strict:
                return [None] * call.outputs
            shapes = ", ".join(self.shape_text(name) for name in inputs)
            raise ShapeClash(
                f"the shapes do not fit {call.op} {call.name!r} of {shapes}: {_reason(error)}"
            ) from None
        return [types.get(name) for name in outputs]

    def shape_text(self, name: str) -> str:
        extents = [str(e) if e is not None else "?" for e in self.extents(name) or []]
        if name in self.values:
            extents = [str(extent) for extent in self.values[name].shape]
        return "x".join(extents) or "a scalar"

    # -- errors -----------------------------------------------------------------------------

    def undecided(self, what: str, name: str) -> Undecided:
        """Names the inputs that a value depends on, and how to fix them."""
        made_by = {output: node for node in self.nodes for output in node.output}
        waiting, seen, at_fault = [name], {name}, dict[str, float]()
        while waiting:
            value = waiting.pop()
            node = made_by.get(value)
            if node is None:
                if value in self.inputs:
                    at_fault.setdefault(value, 1)
                continue
            if node.op_type == "Equal":  # compared with a constant: that is what it may be
                for one, other in (node.input, reversed(node.input)):
                    if one in self.inputs and self.values.get(other, np.zeros(0)).size == 1:
                        at_fault[one] = self.values[other].item()
            waiting += [n for n in node.input if n and n not in seen]
            seen.update(node.input)
        options = " ".join(f"--value {n}={v:g}" for n, v in at_fault.items())
        inputs = ", ".join(map(repr, at_fault)) or "no input"
        return Undecided(
            f"{what} must be known, but it depends on the value of {inputs}; fix it: {options}",
            at_fault,
        )


def _reads(node: Any) -> set[str]:
    """The names a node reads, subgraphs included."""
    names = set(node.input)
    for attribute in node.attribute:
        for graph in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
            names.update(*(_reads(inner) for inner in graph.node))
            names.update(output.name for output in graph.output)
    return names


def _constant(onnx: Any, call: Node) -> list[Array] | None:
    kinds: dict[str, Any] = {"value_float": np.float32, "value_floats": np.float32}
    kinds |= {"value_int": np.int64, "value_ints": np.int64}
    for name, value in call.attributes.items():
        if name == "value":
            return [onnx.numpy_helper.to_array(value)]
        if name in kinds:
            return [np.asarray(value, kinds[name])]
    return None


def _size(kind: Any) -> int | None:
    if kind is None or not kind.tensor_type.HasField("shape"):
        return None
    return int(np.prod([dim.dim_value for dim in kind.tensor_type.shape.dim] or [1]))


def _as_inferred(onnx: Any, array: Array, kind: Any) -> Array:
    """The evaluator is not always exact about types: numpy widens."""
    if kind is None or not kind.tensor_type.elem_type:
        return array
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type)
    return array.astype(dtype, copy=False)


def _type_of_array(onnx: Any, array: Array) -> Any:
    return onnx.helper.make_tensor_type_proto(
        onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
    )


def _reason(error: Exception) -> str:
    text = first_line(error)
    return text.rpartition("] ")[2] or text
