"""ONNX files with the data beside them; what lies elsewhere is not opened."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

from tensorese.workloads.errors import NetworkError, first_line


def read(path: Path) -> Any:
    """The model with its functions inlined and its external data loaded."""
    import onnx
    import onnx.inliner

    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception:
        model = None
    if model is None or not model.graph.node:
        raise NetworkError(f"{path} is no model: neither ONNX nor a torch.export archive (.pt2)")
    _load_data(onnx, model, path)
    if model.functions:
        try:
            return onnx.inliner.inline_local_functions(model, True)
        except Exception as error:
            raise NetworkError(
                f"the functions in {path} cannot be inlined: {first_line(error)}"
            ) from (None)
    return model


def _load_data(onnx: Any, model: Any, path: Path) -> None:
    folder, tensors = path.parent, list(_external(onnx, model))
    for tensor in tensors:
        place = {entry.key: entry.value for entry in tensor.external_data}.get("location", "")
        parts = PurePosixPath(place.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts:
            raise NetworkError(
                f"external data must lie in the model's folder, but {path} names {place!r}; "
                "move it there and save the model anew"
            )
        if not (folder / place).is_file():
            raise NetworkError(
                f"{path} keeps {tensor.name!r} in {folder / place}, which is missing; "
                "put that file beside the model"
            )
    try:
        for tensor in tensors:
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(folder))
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
    except Exception as error:
        raise NetworkError(
            f"the external data of {path} cannot be read: {first_line(error)}"
        ) from (None)


def _external(onnx: Any, model: Any) -> Any:
    graphs = [model.graph]
    nodes = [node for function in model.functions for node in function.node]
    while graphs or nodes:
        if graphs:
            graph = graphs.pop()
            yield from (t for t in graph.initializer if _is_external(onnx, t))
            nodes += graph.node
        for node in nodes:
            for attribute in node.attribute:
                yield from (t for t in (attribute.t, *attribute.tensors) if _is_external(onnx, t))
                graphs += [attribute.g] if attribute.HasField("g") else []
                graphs += attribute.graphs
        nodes = []


def _is_external(onnx: Any, tensor: Any) -> bool:
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)
