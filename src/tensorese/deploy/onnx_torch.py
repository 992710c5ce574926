"""An ONNX graph of everyday operators run by torch, so that ONNX models have a torch latency too.

Only for comparison: its outputs are checked like every other system's, and a graph with an
operator that is not here simply has no torch column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tensorese.deploy.errors import DeployError


def module_of(path: str) -> Any:
    """A torch module that takes the graph's inputs in order."""
    import onnx
    import torch

    graph = onnx.load(path).graph
    constants = {one.name: _tensor(torch, onnx, one) for one in graph.initializer}
    inputs = [one.name for one in graph.input if one.name not in constants]
    return _network(torch, onnx, graph, inputs, constants)


def _tensor(torch: Any, onnx: Any, stored: Any) -> Any:
    return torch.from_numpy(np.array(onnx.numpy_helper.to_array(stored)))


def _network(torch: Any, onnx: Any, graph: Any, inputs: list[str], constants: Any) -> Any:
    rules = Operators(torch, onnx).rules()
    steps = []
    for node in graph.node:
        if node.op_type not in rules:
            raise DeployError(f"torch is not compared: its ONNX reader has no {node.op_type}")
        step = (rules[node.op_type], _attributes(onnx, node), list(node.input), list(node.output))
        if all(name in constants for name in node.input if name):
            with torch.no_grad():
                _run(step, constants)  # what is constant is computed once, as any runtime does
        else:
            steps.append(step)

    class Network(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.names = {f"c{i}": name for i, name in enumerate(constants)}
            for held, name in self.names.items():
                self.register_buffer(held, constants[name])

        def forward(self, *arguments: Any) -> Any:
            values = {name: getattr(self, held) for held, name in self.names.items()}
            values.update(zip(inputs, arguments, strict=True))
            for step in steps:
                _run(step, values)
            made = [values[one.name] for one in graph.output]
            return made[0] if len(made) == 1 else tuple(made)

    return Network().eval()


def _run(step: Any, values: dict[str, Any]) -> None:
    rule, attributes, inputs, outputs = step
    values[outputs[0]] = rule(attributes, *(values[name] if name else None for name in inputs))


def _attributes(onnx: Any, node: Any) -> dict[str, Any]:
    return {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}


class Operators:
    """One rule an operator: its attributes, then its inputs."""

    def __init__(self, torch: Any, onnx: Any) -> None:
        self.torch = torch
        self.onnx = onnx
        self.f = torch.nn.functional

    def rules(self) -> dict[str, Callable[..., Any]]:
        torch, f = self.torch, self.f
        return {
            "ConstantOfShape": self.filled,
            "Constant": lambda a: _tensor(torch, self.onnx, a["value"]),
            "Conv": self.conv,
            "BatchNormalization": self.norm,
            "Relu": lambda a, x: f.relu(x),
            "Sum": lambda a, *xs: sum(xs[1:], xs[0]),
            "Add": lambda a, x, y: x + y,
            "Mul": lambda a, x, y: x * y,
            "MatMul": lambda a, x, y: x @ y,
            "MaxPool": self.max_pool,
            "AveragePool": self.average_pool,
            "GlobalAveragePool": lambda a, x: x.mean((2, 3), keepdim=True),
            "Concat": lambda a, *xs: torch.cat(xs, a["axis"]),
            "Dropout": lambda a, x, *_: x,
            "Identity": lambda a, x: x,
            "Flatten": lambda a, x: x.flatten(a.get("axis", 1)),
            "Reshape": lambda a, x, shape: x.reshape([int(extent) for extent in shape]),
            "Gemm": self.gemm,
            "Softmax": self.softmax,
            "LRN": lambda a, x: f.local_response_norm(
                x, a["size"], a["alpha"], a["beta"], a["bias"]
            ),
        }

    def filled(self, a: Mapping[str, Any], shape: Any) -> Any:
        value = _tensor(self.torch, self.onnx, a["value"]).reshape(())
        return value.expand([int(extent) for extent in shape]).contiguous()

    def conv(self, a: Mapping[str, Any], x: Any, weight: Any, bias: Any = None) -> Any:
        x, pads = self._padded(a, x, 0.0)
        strides, dilations = a.get("strides", [1, 1]), a.get("dilations", [1, 1])
        return self.f.conv2d(x, weight, bias, strides, pads, dilations, a.get("group", 1))

    def norm(self, a: Mapping[str, Any], x: Any, *stored: Any) -> Any:
        scale, shift, mean, variance = stored
        eps = a.get("epsilon", 1e-5)
        return self.f.batch_norm(x, mean, variance, scale, shift, False, 0.0, eps)

    def max_pool(self, a: Mapping[str, Any], x: Any) -> Any:
        x, pads = self._padded(a, x, float("-inf"))
        return self.f.max_pool2d(x, a["kernel_shape"], a.get("strides", [1, 1]), pads)

    def average_pool(self, a: Mapping[str, Any], x: Any) -> Any:
        if any(a.get("pads", [])):
            raise DeployError("torch is not compared: its ONNX reader has no padded AveragePool")
        return self.f.avg_pool2d(x, a["kernel_shape"], a.get("strides", [1, 1]))

    def gemm(self, a: Mapping[str, Any], x: Any, weight: Any, bias: Any = None) -> Any:
        if a.get("transA", 0) or a.get("alpha", 1.0) != 1.0 or a.get("beta", 1.0) != 1.0:
            raise DeployError("torch is not compared: its ONNX reader has no scaled Gemm")
        return self.f.linear(x, weight if a.get("transB", 0) else weight.T, bias)

    def softmax(self, a: Mapping[str, Any], x: Any) -> Any:
        """Up to opset 12 over everything from `axis` on: the default, 1, is what old files mean."""
        axis = a.get("axis", 1)
        flat = x.flatten(axis) if axis >= 0 else x
        return self.torch.softmax(flat, -1).reshape(x.shape)

    def _padded(self, a: Mapping[str, Any], x: Any, fill: float) -> tuple[Any, list[int]]:
        """torch pads both ends alike; anything else is padded beforehand."""
        top, left, bottom, right = a.get("pads", [0, 0, 0, 0])
        if (top, left) == (bottom, right):
            return x, [top, left]
        return self.f.pad(x, (left, right, top, bottom), value=fill), [0, 0]
