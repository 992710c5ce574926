"""Sigmoids written out: what small probabilities are judged by."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from onnx_support import floats, model_of, node, operators_of, outputs_of
from tensorese.workloads.onnx_graph import sigmoids_written_out

pytestmark = pytest.mark.null
LOW = np.linspace(-30, -8, 10001, dtype=np.float32)


def _worst(model: Any, x: np.ndarray) -> float:
    """The largest error over the value itself."""
    want = 1 / (1 + np.exp(-x.astype(np.float64)))
    (got,) = outputs_of(model, {"x": x})
    return float((np.abs(got - want) / want).max())


def test_a_sigmoid_is_right_where_it_is_nearly_zero() -> None:
    """onnxruntime's own is not: the reason why it is written out."""
    model = model_of([node("Sigmoid", "x")], {"x": LOW})
    written = sigmoids_written_out(model)
    assert _worst(model, LOW) > 0.5
    assert _worst(written, LOW) < 1e-6
    assert operators_of(model) == {"Sigmoid"}  # the caller's stays as it is
    assert _worst(written, -LOW) < 1e-6


def test_branches_are_written_out_too() -> None:
    def branch(*nodes: Any) -> Any:
        return helper.make_graph(nodes, "b", [], [helper.make_value_info("y", onnx.TypeProto())])

    chosen = helper.make_node(
        "If",
        ["c"],
        ["y"],
        then_branch=branch(node("Sigmoid", "x")),
        else_branch=branch(node("Relu", "x")),
    )
    model = model_of([chosen], {"x": LOW}, {"c": np.array(True)})
    assert _worst(sigmoids_written_out(model), LOW) < 1e-6


def test_a_model_without_one_stays() -> None:
    assert sigmoids_written_out(model_of([node("Relu", "x")], {"x": floats(2)})) is None
