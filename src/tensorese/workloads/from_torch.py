"""`torch.export` programs to networks."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

from tensorese.records.nouns import TensorSpec
from tensorese.tvm_env import import_tvm
from tensorese.workloads.errors import ModelError, first_line
from tensorese.workloads.network import Array, Input, Network


def network_of(program: Any, *, name: str, below: int = 2) -> Network:
    """A network of an `ExportedProgram`, its weights as constants."""
    import_tvm()  # before torch, which it would otherwise drag through its own import
    import torch

    if not isinstance(program, torch.export.ExportedProgram):
        what = type(program).__name__
        raise ModelError(
            f"a model must be a torch.export.ExportedProgram, a path or zoo:NAME, but got a "
            f"{what}; call torch.export.export(model, example_inputs) first"
        )
    inputs = tuple(_input(torch, node, below) for node in _user_inputs(program))
    from tvm.relax.frontend.torch import from_exported_program

    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # deprecations inside torch, none of them ours
            lowered = program.run_decompositions(_decompositions(torch))
            module = from_exported_program(lowered, run_ep_decomposition=False)
    except Exception as error:
        raise ModelError(_explain(name, error)) from None
    runner = program.module()

    def reference(arrays: Sequence[Array]) -> list[Array]:
        with torch.no_grad():
            outputs = runner(*(torch.from_numpy(array) for array in arrays))
        listed = outputs if isinstance(outputs, tuple | list) else [outputs]
        return [output.numpy() for output in listed]

    return Network(name=name, module=module, inputs=inputs, reference=reference)


def _decompositions(torch: Any) -> Any:
    """torch's own, but linear and matmul stay whole.

    Decomposed, they are flattened to two axes and back, and those reshapes keep TVM from fusing
    what follows. Without any, TVM reads a batch norm's momentum as its epsilon.
    """
    table = torch.export.default_decompositions()
    for kept in (torch.ops.aten.linear.default, torch.ops.aten.matmul.default):
        table.pop(kept, None)
    return table


def _user_inputs(program: Any) -> list[Any]:
    wanted = set(program.graph_signature.user_inputs)
    return [
        node for node in program.graph.nodes if node.op == "placeholder" and node.name in wanted
    ]


def _input(torch: Any, node: Any, below: int) -> Input:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        raise ModelError(f"every input must be a tensor, but {node.name!r} is {value!r}")
    if any(isinstance(extent, torch.SymInt) for extent in value.shape):
        shape = "x".join(str(extent) for extent in value.shape)
        raise ModelError(
            f"every input shape must be fixed, but {node.name!r} is {shape}; "
            "export the model without dynamic_shapes"
        )
    spec = TensorSpec(shape=tuple(value.shape), dtype=str(value.dtype).removeprefix("torch."))
    return Input(name=node.name, spec=spec, below=below)


def _explain(name: str, error: Exception) -> str:
    unsupported = re.search(r"Unsupported function types? \[(.*)\]", str(error))
    if unsupported:
        operators = ", ".join(re.findall(r"'([^']+)'", unsupported.group(1)))
        return f"TVM's torch front end has no operator {operators}, which {name} uses"
    return f"TVM's torch front end could not take {name}: {first_line(error)}"
