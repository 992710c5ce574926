"""ONNX models of a few nodes, and what onnxruntime says they compute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from tensorese.records.nouns import TensorSpec
from tensorese.workloads.onnx_graph import Plain, plain

Arrays = Mapping[str, np.ndarray]


def node(op: str, inputs: str, outputs: str = "y", **attributes: Any) -> Any:
    """Names apart by spaces; "-" is an absent one."""
    names = [["" if n == "-" else n for n in text.split()] for text in (inputs, outputs)]
    return helper.make_node(op, *names, **attributes)


def model_of(
    nodes: Sequence[Any],
    inputs: Arrays,
    weights: Arrays | None = None,
    outputs: Sequence[str] = ("y",),
    opset: int = 17,
    shapes: Mapping[str, Sequence[Any]] | None = None,
) -> Any:
    """A model that takes arrays like `inputs`, or of the open `shapes`."""
    values = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(array.dtype),
            (shapes or {}).get(name, array.shape),
        )
        for name, array in inputs.items()
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        values,
        [helper.make_value_info(name, onnx.TypeProto()) for name in outputs],
        [onnx.numpy_helper.from_array(a, n) for n, a in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def made_plain(model: Any, inputs: Arrays, values: Arrays | None = None) -> Plain:
    specs = {n: TensorSpec(shape=a.shape, dtype=a.dtype.name) for n, a in inputs.items()}
    return plain(model, specs, values or {})


def outputs_of(model: Any, inputs: Arrays) -> list[np.ndarray]:
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, dict(inputs)))


def operators_of(model: Any) -> set[str]:
    return {one.op_type for one in model.graph.node}


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)
