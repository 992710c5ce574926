"""LSTM, GRU and RNN, unrolled: TVM's front end has none of them.

The products with the input are one product for all steps; a step then is a product with the state
and its activations, the same two kernels every time. Steps are cut by one `Split`, because cuts at
different places would be different tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tensorese.workloads.onnx_graph.graph import Graph, Node

Step = Callable[[str, list[str]], list[str]]
_DEFAULTS = {
    "LSTM": ["Sigmoid", "Tanh", "Tanh"],
    "GRU": ["Sigmoid", "Tanh"],
    "RNN": ["Tanh"],
}
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@dataclass(frozen=True, kw_only=True)
class Direction:
    """One direction's weights, transposed for products from the right, and its activations."""

    graph: Graph
    node: Node
    hidden: int
    w: str
    r: str
    bias_w: str
    bias_r: str
    peepholes: list[str]
    activations: list[Callable[[str], str]]

    def clipped(self, x: str) -> str:
        limit = self.node.get("clip")
        if not limit:
            return x
        g = self.graph
        low, high = g.like(-limit, x), g.like(limit, x)
        return g.op("Min", g.op("Max", x, low), high)

    def gate(self, x: str, index: int) -> str:
        """One gate's columns of [batch, gates * hidden]."""
        return self.graph.cut(x, 1, index * self.hidden, (index + 1) * self.hidden)

    def act(self, index: int, x: str) -> str:
        return self.activations[index](self.clipped(x))

    # -- steps: x is the product with the input, biases included ------------------------------

    def lstm(self, x: str, states: list[str]) -> list[str]:
        g, (h, c) = self.graph, states
        gates = g.op("Add", x, g.op("MatMul", h, self.r))
        i, o, f, new = (self.gate(gates, index) for index in range(4))
        if self.peepholes:
            i = g.op("Add", i, g.op("Mul", self.peepholes[0], c))
            f = g.op("Add", f, g.op("Mul", self.peepholes[2], c))
        i = self.act(0, i)
        f = g.op("Sub", g.like(1, i), i) if self.node.get("input_forget", 0) else self.act(0, f)
        c = g.op("Add", g.op("Mul", f, c), g.op("Mul", i, self.act(1, new)))
        if self.peepholes:
            o = g.op("Add", o, g.op("Mul", self.peepholes[1], c))
        # The cell state is clipped by no runtime, the value that leaves it by none either.
        h = g.op("Mul", self.act(0, o), self.activations[2](c))
        return [h, c]

    def gru(self, x: str, states: list[str]) -> list[str]:
        g, (h,) = self.graph, states
        both = self.hidden * 2
        if self.node.get("linear_before_reset", 0):
            product = g.op("Add", g.op("MatMul", h, self.r), self.bias_r)
            z = self.act(0, g.op("Add", self.gate(x, 0), self.gate(product, 0)))
            r = self.act(0, g.op("Add", self.gate(x, 1), self.gate(product, 1)))
            new = g.op("Mul", r, self.gate(product, 2))
        else:
            product = g.op("MatMul", h, g.cut(self.r, 1, 0, both))
            z = self.act(0, g.op("Add", self.gate(x, 0), self.gate(product, 0)))
            r = self.act(0, g.op("Add", self.gate(x, 1), self.gate(product, 1)))
            new = g.op("MatMul", g.op("Mul", r, h), g.cut(self.r, 1, both, 3 * self.hidden))
        new = self.act(1, g.op("Add", self.gate(x, 2), new))
        return [g.op("Add", new, g.op("Mul", z, g.op("Sub", h, new)))]

    def rnn(self, x: str, states: list[str]) -> list[str]:
        g, (h,) = self.graph, states
        return [self.act(0, g.op("Add", x, g.op("MatMul", h, self.r)))]


def unroll(graph: Graph, node: Node) -> Sequence[str]:
    """Y [steps, directions, batch, hidden], the last h [directions, batch, hidden], LSTM's c."""
    g = graph
    batch_first = bool(node.get("layout", 0))
    x = g.op("Transpose", node.inputs[0], perm=[1, 0, 2]) if batch_first else node.inputs[0]
    lengths = _lengths(g, node, g.shape(x)[0])
    backward = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    outputs, last = list[str](), list[list[str]]()
    for index, reverse in enumerate(backward[node.get("direction", "forward")]):
        direction = _direction(g, node, index)
        states = [_initial(g, node, x, place, index) for place in _state_places(node)]
        rows, states = _run(direction, x, states, reverse, lengths)
        outputs.append(rows)
        last.append(states)
    steps, batch = g.shape(x)[:2]
    hidden = g.shape(last[0][0])[1]
    parts = [g.reshape(rows, [steps, 1, batch, hidden]) for rows in outputs]
    y = _joined(g, parts, 1)
    ends = []
    for state in range(len(last[0])):
        ends.append(_joined(g, [g.reshape(one[state], [1, batch, hidden]) for one in last], 0))
    if batch_first:
        y = g.op("Transpose", y, perm=[2, 0, 1, 3])
        ends = [g.op("Transpose", end, perm=[1, 0, 2]) for end in ends]
    return [y, *ends][: node.outputs]


def _run(
    direction: Direction, x: str, states: list[str], reverse: bool, lengths: str
) -> tuple[str, list[str]]:
    """All steps' h as [steps, batch, hidden], and the last states."""
    g, op = direction.graph, direction.node.op
    steps, batch, width = g.shape(x)
    if reverse and lengths:
        x = reversed_up_to(g, x, lengths, time=0, batch=1)
    flat = g.op("MatMul", g.reshape(x, [steps * batch, width]), direction.w)
    product = g.op("Add", flat, direction.bias_w)
    parts = g.split(product, 0, steps)
    step: Step = {"LSTM": direction.lstm, "GRU": direction.gru, "RNN": direction.rnn}[op]
    order = range(steps)[::-1] if reverse and not lengths else range(steps)
    rows = [""] * steps
    for index in order:
        made = step(parts[index], states)
        row = made[0]
        if lengths:
            alive = g.op("Less", g.const(index, np.int64), lengths)
            made = [g.op("Where", alive, n, o) for n, o in zip(made, states, strict=True)]
            row = g.op("Where", alive, row, g.like(0, row))
        states, rows[index] = made, g.reshape(row, [1, batch, direction.hidden])
    joined = _joined(g, rows, 0)
    if reverse and lengths:
        joined = reversed_up_to(g, joined, lengths, time=0, batch=1)
    return joined, states


def _direction(g: Graph, node: Node, index: int) -> Direction:
    gates = _GATES[node.op]
    hidden = g.shape(node.inputs[2])[2]

    def part(place: int) -> str:
        whole = node.input(place)
        if g.shape(whole)[0] == 1:
            return g.reshape(whole, g.shape(whole)[1:])
        return g.reshape(g.cut(whole, 0, index, index + 1), g.shape(whole)[1:])

    w = g.op("Transpose", part(1), perm=[1, 0])
    r = g.op("Transpose", part(2), perm=[1, 0])
    zeros = g.const(np.zeros(gates * hidden), g.dtype(w))
    bias_w = bias_r = zeros
    if node.input(3):
        both = part(3)
        bias_w = g.cut(both, 0, 0, gates * hidden)
        bias_r = g.cut(both, 0, gates * hidden, 2 * gates * hidden)
    if not (node.op == "GRU" and node.get("linear_before_reset", 0)):
        bias_w, bias_r = g.op("Add", bias_w, bias_r), zeros
    peepholes = []
    if node.op == "LSTM" and node.input(7):
        all_three = part(7)
        peepholes = [g.cut(all_three, 0, i * hidden, (i + 1) * hidden) for i in range(3)]
    return Direction(
        graph=g,
        node=node,
        hidden=hidden,
        w=w,
        r=r,
        bias_w=bias_w,
        bias_r=bias_r,
        peepholes=peepholes,
        activations=_activations(g, node, index),
    )


def _activations(g: Graph, node: Node, index: int) -> list[Callable[[str], str]]:
    count = len(_DEFAULTS[node.op])
    named = [n.decode() if isinstance(n, bytes) else n for n in node.get("activations") or []]
    names = named[index * count : (index + 1) * count] or _DEFAULTS[node.op]
    if node.get("activation_alpha") or node.get("activation_beta"):
        raise ValueError(f"{node.op} with parameters of its activations")
    by_name = {op.lower(): op for op in ("Sigmoid", "Tanh", "Relu", "Softsign", "Softplus", "Elu")}
    by_name |= {"leakyrelu": "LeakyRelu", "hardsigmoid": "HardSigmoid"}
    if any(name.lower() not in by_name for name in names):
        raise ValueError(f"{node.op} with activations {names}")
    return [partial(g.op, by_name[name.lower()]) for name in names]


def _state_places(node: Node) -> list[int]:
    return [5, 6] if node.op == "LSTM" else [5]


def _initial(g: Graph, node: Node, x: str, place: int, index: int) -> str:
    batch, hidden = g.shape(x)[1], g.shape(node.inputs[2])[2]
    whole = node.input(place)
    if not whole:
        return g.const(np.zeros((batch, hidden)), g.dtype(x))
    if node.get("layout", 0):
        whole = g.op("Transpose", whole, perm=[1, 0, 2])
    if g.shape(whole)[0] > 1:
        whole = g.cut(whole, 0, index, index + 1)
    return g.reshape(whole, [batch, hidden])


def _lengths(g: Graph, node: Node, steps: int) -> str:
    """Lengths as [batch, 1]; "" where every sequence is whole."""
    name = node.input(4)
    known = g.value(name) if name else None
    if not name or (known is not None and np.all(known == steps)):
        return ""
    return g.reshape(g.cast(name, np.int64), [-1, 1] if known is None else [known.size, 1])


def _joined(g: Graph, parts: list[str], axis: int) -> str:
    return parts[0] if len(parts) == 1 else g.op("Concat", *parts, axis=axis)


def reversed_up_to(g: Graph, x: str, lengths: str, *, time: int, batch: int) -> str:
    """Each sequence of a batch backwards up to its length, the rest as it is."""
    shape = g.shape(x)
    places = np.arange(shape[time])
    aside = [1] * len(shape)
    aside[time] = shape[time]
    counted = g.const(places.reshape(aside), np.int64)
    aside = [1] * len(shape)
    aside[batch] = shape[batch]
    length = g.reshape(g.cast(lengths, np.int64), aside)
    mirrored = g.op("Sub", g.op("Sub", length, g.const(1, np.int64)), counted)
    index = g.op("Where", g.op("Less", counted, length), mirrored, counted)
    index = g.op("Expand", index, g.const(list(shape), np.int64))
    return g.op("GatherElements", x, index, axis=time)


def reverse_sequence(graph: Graph, node: Node) -> Sequence[str]:
    x, lengths = node.inputs
    time, batch = int(node.get("time_axis", 0)), int(node.get("batch_axis", 1))
    return [reversed_up_to(graph, x, lengths, time=time, batch=batch)]


RULES: dict[Any, Any] = {("", op): unroll for op in _GATES} | {
    ("", "ReverseSequence"): reverse_sequence
}
