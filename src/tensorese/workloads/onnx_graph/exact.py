"""What outputs are judged by: the file's own model, with the operators written out that
onnxruntime computes coarsely."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def sigmoids_written_out(model: Any) -> Any | None:
    """A copy of the model without Sigmoid; None where it has none.

    onnxruntime's Sigmoid errs by up to 2.3 * 2^-24 of one wherever it is, and is 0 below -18: of
    small probabilities nothing is left to compare with. exp(-softplus(-x)) errs by a rounding or
    two of the result itself.
    """
    import onnx

    if not any(_is_sigmoid(node) for graph in _graphs(model) for node in graph.node):
        return None
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for graph in _graphs(copy):
        nodes = [new for node in graph.node for new in _written_out(onnx, node)]
        del graph.node[:]
        graph.node.extend(nodes)
    return copy


def _graphs(model: Any) -> Iterator[Any]:
    """Inner ones first: who changes a graph's nodes has seen what is in them."""

    def inside(graph: Any) -> Iterator[Any]:
        for node in graph.node:
            for attribute in node.attribute:
                inner = [attribute.g] if attribute.HasField("g") else []
                for one in (*inner, *attribute.graphs):
                    yield from inside(one)
        yield graph

    return inside(model.graph)


def _is_sigmoid(node: Any) -> bool:
    return node.op_type == "Sigmoid" and node.domain in ("", "ai.onnx")


def _written_out(onnx: Any, node: Any) -> list[Any]:
    if not _is_sigmoid(node):
        return [node]
    (x,), (y,) = node.input, node.output
    names = [x, f"{y}__negated", f"{y}__softplus", f"{y}__logarithm", y]
    steps = ("Neg", "Softplus", "Neg", "Exp")
    return [onnx.helper.make_node(op, [names[at]], [names[at + 1]]) for at, op in enumerate(steps)]
