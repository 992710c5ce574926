"""What is compared: our libraries, torch and onnxruntime, each ready to run the same input.

Made inside a process of its own (`worker.py`), on the same cores and with as many threads.
"""

from __future__ import annotations

import importlib.util
import io
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorese.deploy.library import Library, Signature

Array = npt.NDArray[Any]
Call = Callable[[], Any]


class System:
    """One contender: `call` runs the network once on the given input and returns its outputs."""

    def __init__(self, spec: Mapping[str, Any], arrays: Sequence[Array]) -> None:
        self.library: Library | None = None
        self.arrays = list(arrays)
        makers: dict[str, Callable[[Mapping[str, Any]], Call]] = {
            "library": self._library,
            "torch": self._torch,
            "onnxruntime": self._onnxruntime,
        }
        self.call = makers[str(spec["kind"])](spec)

    def outputs(self) -> list[Array]:
        results = self.call()
        listed = results if isinstance(results, tuple | list) else [results]
        return [np.asarray(one) for one in listed]

    def _library(self, spec: Mapping[str, Any]) -> Call:
        made = Library(Path(spec["library"]), Signature.from_dict(spec["signature"]))
        self.library = made
        aligned = [_aligned(array) for array in self.arrays]
        return lambda: made(*aligned)

    def _torch(self, spec: Mapping[str, Any]) -> Call:
        import torch

        torch.set_num_threads(int(spec["threads"]))
        module = torch_module(str(spec["model"]))
        tensors = [torch.from_numpy(array) for array in self.arrays]
        if any(tensor.ndim == 4 for tensor in tensors):
            try:
                call = _inference(torch, *_channels_last(torch, module, tensors))
                call()
                return call
            except RuntimeError:  # an exported graph may hold views that need its own layout
                module = torch_module(str(spec["model"]))
        return _inference(torch, module, tensors)

    def _onnxruntime(self, spec: Mapping[str, Any]) -> Call:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(spec["threads"])
        options.inter_op_num_threads = 1
        model = onnx_bytes(str(spec["model"]), self.arrays)
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        names = [one.name for one in session.get_inputs()]
        stored = {one.name for one in session.get_overridable_initializers()}
        fed = dict(zip([n for n in names if n not in stored], self.arrays, strict=True))
        return lambda: session.run(None, fed)


def _inference(torch: Any, module: Any, tensors: Sequence[Any]) -> Call:
    def call() -> Any:
        with torch.inference_mode():
            return module(*tensors)

    return call


def _channels_last(torch: Any, module: Any, tensors: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Where torch's convolutions are fastest on CPUs."""
    last = torch.channels_last
    turned = [t.contiguous(memory_format=last) if t.ndim == 4 else t for t in tensors]
    return module.to(memory_format=last), turned


def _aligned(array: Array) -> Array:
    """A copy on a boundary that lets TVM read it in place, as torch's own tensors are."""
    room = np.empty(array.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def is_onnx(model: str) -> bool:
    return (
        not model.startswith("zoo:") and Path(model.rpartition("@")[0] or model).suffix == ".onnx"
    )


def onnx_path(model: str) -> Path:
    """The file without the shapes a user may have given after `@`."""
    return Path(model) if Path(model).exists() else Path(model.rpartition("@")[0])


def torch_module(model: str) -> Any:
    """The network in torch."""
    if is_onnx(model):
        from tensorese.deploy.onnx_torch import module_of

        return module_of(str(onnx_path(model)))
    if model.startswith("zoo:"):
        from tensorese.workloads import zoo

        name, _ = zoo.parse(model.removeprefix("zoo:"))
        return zoo.build(name)
    from tensorese.workloads import pt2

    return _settled(pt2.load(Path(model)).module())


def _settled(module: Any) -> Any:
    """An exported program has one mode and raises when asked for it, as the ONNX exporter does."""
    module.train = lambda _mode=True: module
    module.eval = lambda: module
    return module


def onnx_bytes(model: str, arrays: Sequence[Array]) -> bytes:
    """The network as ONNX: the file with the values a user fixed, or exported from torch."""
    if is_onnx(model):
        from tensorese.workloads.from_onnx import source_bytes
        from tensorese.workloads.load import split_spec

        return source_bytes(*split_spec(model))
    import torch

    module = torch_module(model)
    stream: Any = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # deprecations of the exporter that needs no extra package
        inputs = tuple(torch.from_numpy(array) for array in arrays)
        torch.onnx.export(module, inputs, stream, dynamo=False)
    return bytes(stream.getvalue())


def available() -> list[str]:
    """The other systems that may run this model here."""
    installed = importlib.util.find_spec("onnxruntime") is not None
    return ["torch", "onnxruntime"] if installed else ["torch"]


def keep_to(threads: int) -> None:
    """The same cores for every contender: the first that this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:threads])
