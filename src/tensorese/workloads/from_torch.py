"""`torch.export` programs to networks."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tensorese.records.nouns import TensorSpec
from tensorese.tvm_env import import_tvm
from tensorese.workloads.errors import NetworkError, first_line
from tensorese.workloads.halves import converters
from tensorese.workloads.network import Array, Input, Network, np_dtype
from tensorese.workloads.widened import HALVES, widened_outputs


def exported(module: Any, inputs: Any) -> Any:
    """An `nn.Module` as an `ExportedProgram` whose inputs and outputs are plain containers.

    `inputs` is a tensor, a tuple of them, or a dict of those that are passed by name.
    """
    import_tvm()  # before torch, which it would otherwise drag through its own import
    import torch

    if isinstance(inputs, torch.Tensor):
        inputs = (inputs,)
    args = () if isinstance(inputs, Mapping) else tuple(inputs or ())
    kwargs = dict(inputs) if isinstance(inputs, Mapping) else {}
    what = type(module).__name__
    if not args and not kwargs:
        raise NetworkError(
            f"a module must come with example inputs, but {what} has none; "
            "call tensorese.tune(module, (tensor, ...)) or with a dict of them by name"
        )
    was_training = module.training
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # remarks about the module's own code
            program = torch.export.export(module.eval(), args, kwargs)
            if _is_plain(program.call_spec.out_spec):
                return program
            return torch.export.export(_flat(torch, module), args, kwargs)
    except Exception as error:
        raise NetworkError(
            f"torch.export must be able to take {what}, but it refuses: {first_line(error)}"
        ) from None
    finally:
        module.train(was_training)


def _is_plain(spec: Any) -> bool:
    """Whether outputs are tensors in tuples, lists and dicts, which any process can read."""
    plain = spec.is_leaf() or spec.type in (tuple, list, dict)
    return plain and all(map(_is_plain, spec.children()))


def _flat(torch: Any, module: Any) -> Any:
    """The module with its output tensors in a tuple, as TVM gives them: no class of a library's."""

    class Flat(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.whole = module

            @functools.wraps(module.forward)  # inputs keep their names
            def forward(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
                leaves = torch.utils._pytree.tree_leaves(self.whole(*args, **kwargs))
                return tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))

            self.forward = forward

    return Flat().eval()


def nested(program: Any, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The tensors as the exported module takes them: in order, and by name."""
    from torch.utils import _pytree

    args, kwargs = _pytree.tree_unflatten(list(tensors), program.call_spec.in_spec)
    return tuple(args), dict(kwargs)


def flat_outputs(torch: Any, outputs: Any) -> list[Array]:
    leaves = torch.utils._pytree.tree_leaves(outputs)
    return [array_of(torch, leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]


def array_of(torch: Any, tensor: Any) -> Array:
    """numpy knows bfloat16 by name only: its bits are read as that type."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        bits: Array = tensor.view(torch.int16).numpy()
        return bits.view(np_dtype("bfloat16"))
    array: Array = tensor.numpy()
    return array


def tensor_of(torch: Any, array: Array) -> Any:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(np.ascontiguousarray(array).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(array))


def _example_integers(torch: Any, program: Any, inputs: Sequence[Input]) -> dict[str, Array]:
    """Integers and masks of the example inputs: any float will do, but not any token."""
    if not program.example_inputs:
        return {}
    leaves = torch.utils._pytree.tree_leaves(program.example_inputs)
    pairs = zip(inputs, leaves, strict=False) if len(leaves) == len(inputs) else ()
    return {
        one.name: array_of(torch, leaf)
        for one, leaf in pairs
        if isinstance(leaf, torch.Tensor) and not leaf.is_floating_point()
    }


def network_of(program: Any, *, name: str, below: int = 0) -> Network:
    """A network of an `ExportedProgram`, its weights as constants."""
    import_tvm()  # before torch, which it would otherwise drag through its own import
    import torch

    if not isinstance(program, torch.export.ExportedProgram):
        what = type(program).__name__
        raise NetworkError(
            f"a model must be a torch.export.ExportedProgram, a path or zoo:NAME, but got a "
            f"{what}; call torch.export.export(model, example_inputs) first, or give a module and "
            "its inputs to tensorese.tune"
        )
    inputs = tuple(_input(torch, node, below) for node in _user_inputs(program))
    from tvm.relax.frontend.torch import from_exported_program

    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # deprecations inside torch, none of them ours
            lowered = program.run_decompositions(_decompositions(torch))
            module = from_exported_program(
                lowered,
                run_ep_decomposition=False,
                custom_convert_map=converters() if _is_half(torch, program, inputs) else None,
            )
    except Exception as error:
        raise NetworkError(_explain(name, error)) from None
    runner = program.module()

    def reference(arrays: Sequence[Array]) -> list[Array]:
        with torch.no_grad():
            args, kwargs = nested(program, [tensor_of(torch, array) for array in arrays])
            return flat_outputs(torch, runner(*args, **kwargs))

    def wide(arrays: Sequence[Array]) -> list[Array]:
        return widened_outputs(torch, program, arrays)

    return Network(
        name=name,
        module=module,
        inputs=inputs,
        reference=reference,
        widened=wide if _is_half(torch, program, inputs) else None,
        given={} if below else _example_integers(torch, program, inputs),
    )


def _is_half(torch: Any, program: Any, inputs: Sequence[Input]) -> bool:
    halves = {torch.float16, torch.bfloat16}
    stored = [*program.state_dict.values(), *program.constants.values()]
    weights = any(getattr(one, "dtype", None) in halves for one in stored)
    return weights or any(one.spec.dtype in HALVES for one in inputs)


def _decompositions(torch: Any) -> Any:
    """torch's own, but linear and matmul stay whole.

    Decomposed, they are flattened to two axes and back, and those reshapes keep TVM from fusing
    what follows. Without any, TVM reads a batch norm's momentum as its epsilon.
    """
    table = torch.export.default_decompositions()
    for operator in (torch.ops.aten.linear.default, torch.ops.aten.matmul.default):
        table.pop(operator, None)
    return table


def _user_inputs(program: Any) -> list[Any]:
    wanted = set(program.graph_signature.user_inputs)
    return [
        node for node in program.graph.nodes if node.op == "placeholder" and node.name in wanted
    ]


def _input(torch: Any, node: Any, below: int) -> Input:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        raise NetworkError(f"every input must be a tensor, but {node.name!r} is {value!r}")
    if any(isinstance(extent, torch.SymInt) for extent in value.shape):
        shape = "x".join(str(extent) for extent in value.shape)
        raise NetworkError(
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
