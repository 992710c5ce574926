"""Decided branches are taken, counted loops unrolled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tensorese.workloads.onnx_graph.graph import Control, Graph, Node

Scope = Mapping[str, str]
_MOST_STEPS = 4096


def take_branch(graph: Graph, node: Node, scope: Scope) -> Sequence[str]:
    condition = graph.value(node.inputs[0])
    if condition is None:
        raise graph.undecided("the condition of an If", node.inputs[0])
    branch = node.attributes["then_branch" if condition.all() else "else_branch"]
    return _inlined(graph, branch, {}, scope)


def unroll_loop(graph: Graph, node: Node, scope: Scope) -> Sequence[str]:
    """Loop(count, condition, carried...): carried values, then what each step scanned out."""
    body = node.attributes["body"]
    count, condition = node.input(0), node.input(1)
    if count and graph.value(count) is None:
        raise graph.undecided("the number of a Loop's steps", count)
    steps = int(graph.known(count).item()) if count else _MOST_STEPS
    carried, scanned = list(node.inputs[2:]), list[list[str]]()
    going = graph.known(condition).item() if condition and condition in graph.values else True
    if condition and condition not in graph.values:
        raise graph.undecided("the condition of a Loop", condition)
    step = 0
    while step < steps and going:
        if step == _MOST_STEPS:
            raise ValueError(f"a Loop of more than {_MOST_STEPS} steps")
        fed = [graph.const(step, np.int64), graph.const(True), *carried]
        names = [value.name for value in body.input]
        made = _inlined(graph, body, dict(zip(names, fed, strict=True)), scope)
        going_on = graph.value(made[0])
        if going_on is None:
            raise graph.undecided("the condition of a Loop", made[0])
        going = bool(going_on.item())
        scanned.append(list(made[1 + len(carried) :]))
        carried = list(made[1 : 1 + len(carried)])
        step += 1
    outputs = len(body.output) - 1 - len(carried)
    return carried + [_stacked(graph, [row[i] for row in scanned], 0) for i in range(outputs)]


def unroll_scan(graph: Graph, node: Node, scope: Scope) -> Sequence[str]:
    """Scan(states..., sequences...): final states, then what each step scanned out."""
    body = node.attributes["body"]
    if graph.opset < 9:
        raise ValueError("Scan before opset 9 is not taken")
    sequences = int(node.get("num_scan_inputs"))
    states = list(node.inputs[: len(node.inputs) - sequences])
    scanned_in = list(node.inputs[len(states) :])
    axes = node.get("scan_input_axes") or [0] * sequences
    backward = node.get("scan_input_directions") or [0] * sequences
    outputs = len(body.output) - len(states)
    out_axes = node.get("scan_output_axes") or [0] * outputs
    out_backward = node.get("scan_output_directions") or [0] * outputs
    steps = graph.shape(scanned_in[0])[axes[0]]
    columns = [
        _elements(graph, x, axis, back)
        for x, axis, back in zip(scanned_in, axes, backward, strict=True)
    ]
    rows: list[list[str]] = []
    for step in range(steps):
        fed = [*states, *(column[step] for column in columns)]
        names = [value.name for value in body.input]
        made = list(_inlined(graph, body, dict(zip(names, fed, strict=True)), scope))
        states, row = made[: len(states)], made[len(states) :]
        rows.append(row)
    stacked = []
    for index in range(outputs):
        column = [row[index] for row in rows]
        column = column[::-1] if out_backward[index] else column
        stacked.append(_stacked(graph, column, out_axes[index]))
    return states + stacked


def _elements(graph: Graph, x: str, axis: int, backward: int) -> list[str]:
    shape = list(graph.shape(x))
    axis %= len(shape)
    parts = graph.split(x, axis, shape[axis])
    cut = [graph.reshape(part, shape[:axis] + shape[axis + 1 :]) for part in parts]
    return cut[::-1] if backward else cut


def _stacked(graph: Graph, values: list[str], axis: int) -> str:
    if not values:
        raise ValueError("a loop of no steps has nothing to stack")
    shape = list(graph.shape(values[0]))
    axis %= len(shape) + 1
    rows = [graph.reshape(value, [*shape[:axis], 1, *shape[axis:]]) for value in values]
    return rows[0] if len(rows) == 1 else graph.op("Concat", *rows, axis=axis)


def _inlined(graph: Graph, body: Any, fed: dict[str, str], scope: Scope) -> list[str]:
    """A subgraph's outputs; what it reads from around it is in `scope`."""
    names = {**scope, **fed}
    for tensor in body.initializer:
        names[tensor.name] = graph.const(graph.onnx.numpy_helper.to_array(tensor))
    results = [output.name for output in body.output]
    names = graph.walk(body.node, names, set(results))
    return [names.get(name, name) for name in results]


CONTROL: Control = {"If": take_branch, "Loop": unroll_loop, "Scan": unroll_scan}
