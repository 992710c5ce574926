"""Small networks and the comparison of a compiled one with its source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tensorese.targets import Target
from tensorese.tvm_env import import_tvm
from tensorese.workloads import Network, load_network, prepare


def host() -> str:
    return Target.parse("host").to_json()


def export(model: nn.Module, *inputs: torch.Tensor, **options: Any) -> Any:
    with torch.no_grad():
        return torch.export.export(model.eval(), inputs, **options)


def network_of(model: nn.Module, *inputs: torch.Tensor) -> Network:
    return load_network(export(model, *inputs))


def compiled_outputs(network: Network, target: str, seed: int = 0) -> list[np.ndarray]:
    """What the prepared, untuned network computes on this CPU."""
    tvm = import_tvm()
    # Unoptimised code: LLVM would need longer than the network runs.
    quick = tvm.target.Target({**json.loads(target), "opt-level": 0})
    built = tvm.compile(prepare(network.module, target), quick)
    machine = tvm.relax.VirtualMachine(built, tvm.cpu())
    outputs = machine["main"](*(tvm.runtime.tensor(array) for array in network.example(seed)))
    listed = [outputs] if hasattr(outputs, "numpy") else list(outputs)
    return [output.numpy() for output in listed]


def worst_error(network: Network, target: str, seed: int = 0) -> float:
    """The largest difference from the source, over the largest value of that output."""
    expected = network.reference(network.example(seed))
    found = compiled_outputs(network, target, seed)
    assert [f.shape for f in found] == [e.shape for e in expected]
    assert all(np.isfinite(f).all() for f in found)
    return max(
        float(np.abs(f - e).max() / np.abs(e).max()) for f, e in zip(found, expected, strict=True)
    )


def light_network(name: str, folder: Path) -> Path:
    """A copy of a network shipped with onnx, its weights drawn at random.

    As shipped they are constants, and after them every class is equally likely: any error in the
    import would still agree.
    """
    import onnx

    source = Path(onnx.__file__).parent / f"backend/test/data/light/light_{name}.onnx"
    model, random = onnx.load(str(source)), np.random.default_rng(0)
    shapes = {one.name: onnx.numpy_helper.to_array(one) for one in model.graph.initializer}
    kept = []
    for node in model.graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = tuple(int(extent) for extent in shapes[node.input[0]])
        model.graph.initializer.append(
            onnx.numpy_helper.from_array(_weight(random, shape), node.output[0])
        )
    del model.graph.node[:]
    model.graph.node.extend(kept)
    onnx.save(model, str(folder / source.name))
    return folder / source.name


def _weight(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Positive vectors (a variance may be among them), centred matrices of unit gain."""
    if len(shape) < 2:
        return random.uniform(0.5, 1.0, shape).astype(np.float32)
    gain = np.sqrt(2 / max(1, np.prod(shape[1:])))
    return (gain * random.standard_normal(shape)).astype(np.float32)
