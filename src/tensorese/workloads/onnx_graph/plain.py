"""A model as TVM's front end takes it: fixed shapes, constants computed, nothing to decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorese.records.nouns import TensorSpec
from tensorese.workloads.errors import NetworkError, first_line
from tensorese.workloads.onnx_graph import operators, quantised, recurrent, resize
from tensorese.workloads.onnx_graph.control import CONTROL
from tensorese.workloads.onnx_graph.graph import Array, Graph, Rule

_ROOMS = (quantised.RULES, operators.RULES, recurrent.RULES, resize.RULES)


@dataclass(frozen=True, kw_only=True)
class Plain:
    model: Any
    """An ONNX model of standard operators without control flow."""
    notes: tuple[str, ...]
    """What is computed otherwise than the file says."""
    quantised: bool


def rules() -> dict[tuple[str, str], list[Rule]]:
    merged: dict[tuple[str, str], list[Rule]] = {}
    for room in _ROOMS:
        for key, rule in room.items():
            merged.setdefault(key, []).append(rule)
    return merged


def plain(model: Any, inputs: Mapping[str, TensorSpec], values: Mapping[str, Array]) -> Plain:
    """`inputs` are what the result takes, `values` those inputs of the file that are fixed."""
    opsets = {
        ("" if one.domain == "ai.onnx" else one.domain): one.version for one in model.opset_import
    }
    graph = Graph(opsets, model.ir_version, rules(), CONTROL)
    stored = {
        tensor.name: tensor for tensor in model.graph.initializer if tensor.name not in values
    }
    wanted = [output.name for output in model.graph.output]
    try:
        for name, tensor in stored.items():
            graph.values[name] = graph.onnx.numpy_helper.to_array(tensor)
        graph.values |= values
        _add_inputs(graph, inputs)
        names = graph.walk(model.graph.node, {}, set(wanted))
        return _written(graph, [names.get(name, name) for name in wanted], stored)
    except NetworkError:
        raise
    except Exception as error:
        raise NetworkError(f"the graph cannot be made plain: {first_line(error)}") from None


def _add_inputs(graph: Graph, inputs: Mapping[str, TensorSpec]) -> None:
    helper = graph.onnx.helper
    for name, spec in inputs.items():
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(spec.dtype))
        graph.types[name] = helper.make_tensor_type_proto(kind, spec.shape)
        graph.inputs.append(name)


def _written(graph: Graph, outputs: list[str], stored: Mapping[str, Any]) -> Plain:
    """Put together in place: weights may be half a gigabyte, and helpers copy them twice."""
    onnx, taken = graph.onnx, set(graph.inputs)
    for place, name in enumerate(outputs):
        if name in taken or name in graph.values:  # an input, a constant, an output once more
            copy = graph.fresh("output")
            graph.nodes.append(onnx.helper.make_node("Identity", [name], [copy]))
            graph.types[copy] = graph._type_of(name)
            outputs[place] = copy
        taken.add(outputs[place])
    live = _live(graph.nodes, set(outputs))
    read = {name for node in live for name in node.input}
    info = onnx.helper.make_value_info
    model = onnx.ModelProto(
        ir_version=graph.ir_version,
        opset_import=[onnx.helper.make_opsetid("", graph.opset)],
    )
    written = model.graph
    written.name = "plain"
    written.node.extend(live)
    written.input.extend(info(name, graph.types[name]) for name in graph.inputs)
    written.output.extend(info(n, graph.types.get(n, onnx.TypeProto())) for n in outputs)
    for name, array in graph.values.items():
        if name in read:
            made = stored.get(name) or onnx.numpy_helper.from_array(np.asarray(array), name)
            written.initializer.add().CopyFrom(made)
    return Plain(model=model, notes=tuple(graph.notes), quantised=quantised.NOTE in graph.notes)


def _live(nodes: list[Any], wanted: set[str]) -> list[Any]:
    """Nodes that something reads, in order."""
    live = []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            live.append(node)
            wanted.update(node.input)
    return live[::-1]
