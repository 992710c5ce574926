"""ONNX files to networks."""

from __future__ import annotations

import importlib.util
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tensorese.records.nouns import TensorSpec
from tensorese.tvm_env import import_tvm
from tensorese.workloads.errors import ModelError, first_line
from tensorese.workloads.network import Array, Input, Network, Reference

Shapes = Mapping[str, tuple[int, ...]]


def network_of(path: Path, shapes: Shapes | None = None) -> Network:
    """A network of an ONNX file; `shapes` fixes the inputs it leaves open, by name (or "")."""
    if importlib.util.find_spec("onnx") is None:
        raise ModelError(f"{path} needs the onnx package: pip install 'tensorese[onnx]'")
    import_tvm()
    import onnx

    model = _read(onnx, path)
    inputs = _inputs(onnx, model, dict(shapes or {}), path)
    from tvm.relax.frontend.onnx import from_onnx

    given = {one.name: list(one.spec.shape) for one in inputs}
    dtypes = {one.name: one.spec.dtype for one in inputs}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the checker's remarks about old opsets
            module = from_onnx(model, shape_dict=given, dtype_dict=dtypes)
    except Exception as error:
        raise ModelError(_explain(path, error)) from None
    return Network(
        name=path.stem, module=module, inputs=inputs, reference=_reference(onnx, model, inputs)
    )


def _read(onnx: Any, path: Path) -> Any:
    try:
        model = onnx.load(str(path))
    except Exception:
        model = None
    if model is None or not model.graph.node:
        raise ModelError(f"{path} is no model: neither ONNX nor a torch.export archive (.pt2)")
    return model


def _inputs(onnx: Any, model: Any, shapes: dict[str, Any], path: Path) -> tuple[Input, ...]:
    stored = {weight.name for weight in model.graph.initializer}
    values = [value for value in model.graph.input if value.name not in stored]
    if "" in shapes:
        if len(values) != 1:
            names = ", ".join(value.name for value in values)
            example = f"@{values[0].name}=1x128" if values else ""
            raise ModelError(f"{path} has inputs {names}: name the shape's input, e.g. {example}")
        shapes[values[0].name] = shapes.pop("")
    unknown = shapes.keys() - {value.name for value in values}
    if unknown:
        names = ", ".join(value.name for value in values)
        raise ModelError(f"{path} has no input {min(unknown)!r}; its inputs: {names}")
    return tuple(_input(onnx, value, shapes.get(value.name), path) for value in values)


def _input(onnx: Any, value: Any, given: tuple[int, ...] | None, path: Path) -> Input:
    tensor = value.type.tensor_type
    extents: list[Any] = [dim.dim_value or dim.dim_param or "?" for dim in tensor.shape.dim]
    said = "x".join(map(str, extents)) or "of unknown rank"
    if given is None and not all(isinstance(extent, int) for extent in extents):
        example = "x".join(str(e) if isinstance(e, int) else "1" for e in extents)
        raise ModelError(
            f"every input shape must be fixed, but {value.name!r} is {said}; "
            f"give it: {path}@{value.name}={example}"
        )
    shape: tuple[int, ...] = given if given is not None else tuple(extents)
    clash = [e for e, s in zip(extents, shape, strict=False) if isinstance(e, int) and e != s]
    if len(shape) != len(extents) or clash:
        got = "x".join(map(str, shape))
        raise ModelError(f"input {value.name!r} of {path} is {said}, but got {got}")
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)).name
    return Input(name=value.name, spec=TensorSpec(shape=shape, dtype=dtype))


def _reference(onnx: Any, model: Any, inputs: tuple[Input, ...]) -> Reference:
    """onnxruntime where it is installed, else onnx's own evaluator (minutes on a real network)."""

    def run(arrays: Sequence[Array]) -> list[Array]:
        fed = {one.name: array for one, array in zip(inputs, arrays, strict=True)}
        if importlib.util.find_spec("onnxruntime") is None:
            from onnx.reference import ReferenceEvaluator

            return list(ReferenceEvaluator(model).run(None, fed))
        import onnxruntime

        session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        return list(session.run(None, fed))

    return run


def _explain(path: Path, error: Exception) -> str:
    missing = re.search(r"not supported for frontend ONNX: (.*)", str(error))
    if missing:
        return f"TVM's ONNX front end has no operator {missing.group(1).strip()}, in {path}"
    return f"TVM's ONNX front end could not take {path}: {first_line(error)}"
