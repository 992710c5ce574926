"""ONNX files to networks."""

from __future__ import annotations

import importlib.util
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tensorese.tvm_env import import_tvm
from tensorese.workloads.errors import NetworkError, first_line
from tensorese.workloads.network import Array, Input, Network, Reference
from tensorese.workloads.onnx_graph import (
    Fixed,
    Plain,
    Settled,
    plain,
    read,
    settle,
    sigmoids_written_out,
)


def network_of(path: Path, fixed: Fixed | None = None) -> Network:
    """A network of an ONNX file; `fixed` says what the file leaves open."""
    settled, made, model = _plain(path, fixed or Fixed())
    import_tvm()
    from tvm.relax.frontend.onnx import from_onnx

    inputs = tuple(Input(name=name, spec=spec) for name, spec in settled.inputs.items())
    shapes = {one.name: list(one.spec.shape) for one in inputs}
    dtypes = {one.name: one.spec.dtype for one in inputs}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the checker's remarks about old opsets
            module = from_onnx(made.model, shape_dict=shapes, dtype_dict=dtypes)
    except Exception as error:
        raise NetworkError(_explain(path, error)) from None
    compared = _comparable(model, made, settled)
    exact = sigmoids_written_out(compared)
    return Network(
        name=path.stem,
        module=module,
        inputs=inputs,
        reference=_reference(exact or compared, list(settled.inputs)),
        exact="onnxruntime with its sigmoids written out" if exact else "",
        notes=made.notes,
    )


def source_bytes(path: Path, fixed: Fixed) -> bytes:
    """The file as one model of its own that takes what the network takes, for other runtimes.

    A quantised file comes as it is computed here, in float: only that can be compared.
    """
    settled, made, model = _plain(path, fixed)
    return bytes(_comparable(model, made, settled).SerializeToString())


def _plain(path: Path, fixed: Fixed) -> tuple[Settled, Plain, Any]:
    if importlib.util.find_spec("onnx") is None:
        raise NetworkError(f"{path} needs the onnx package: pip install 'tensorese[onnx]'")
    model = read(path)
    settled = settle(model, fixed, path)
    try:
        return settled, plain(model, settled.inputs, settled.values), model
    except NetworkError as error:
        raise NetworkError(f"{path}: {error}") from None


def _comparable(model: Any, made: Plain, settled: Settled) -> Any:
    """The file's model, inputs whose value is fixed as constants; a quantised one in float."""
    import onnx

    if made.quantised:
        return made.model
    if not settled.values:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    inputs = [value for value in copy.graph.input if value.name not in settled.values]
    del copy.graph.input[:]
    copy.graph.input.extend(inputs)
    copy.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in settled.values.items()
    )
    return copy


def _reference(model: Any, inputs: Sequence[str]) -> Reference:
    """onnxruntime where it is installed, else onnx's own evaluator (minutes on a real network)."""

    def run(arrays: Sequence[Array]) -> list[Array]:
        fed = dict(zip(inputs, arrays, strict=True))
        if importlib.util.find_spec("onnxruntime") is None:
            from onnx.reference import ReferenceEvaluator

            return list(ReferenceEvaluator(model).run(None, fed))
        import onnxruntime

        onnxruntime.disable_telemetry_events()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # its remarks about the file are no concern of the user's
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return list(session.run(None, fed))

    return run


def _explain(path: Path, error: Exception) -> str:
    missing = re.search(r"not supported for frontend ONNX: (.*)", str(error))
    if missing:
        return f"TVM's ONNX front end has no operator {missing.group(1).strip()}, in {path}"
    return f"TVM's ONNX front end could not take {path}: {first_line(error)}"
