"""What is compared: our libraries, torch, onnxruntime, ..., each ready to run the same input.

Made inside a process of its own (`worker.py`), on the same cores and with as many threads.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorese.deploy import torch_cuda
from tensorese.deploy.library import Library, Signature

Array = npt.NDArray[Any]
Call = Callable[[], Any]
Bind = Callable[[Sequence[Array]], Call]
_PROGRAM = "tensorese_program"  # where an exported program's module keeps it


class System:
    """One contender: `call` runs the network once on the given input and returns its outputs."""

    def __init__(self, spec: Mapping[str, Any], arrays: Sequence[Array]) -> None:
        self.library: Library | None = None
        makers: dict[str, Callable[[Mapping[str, Any], Sequence[Array]], Bind]] = {
            "library": self._library,
            "torch": self._torch,
            "torch.compile": self._torch_compiled,
            "torch-cuda": self._torch_cuda,
            "onnxruntime": self._onnxruntime,
            "openvino": self._openvino,
        }
        self.bind = makers[str(spec["kind"])](spec, list(arrays))
        self.call = self.bind(list(arrays))

    def outputs(self, arrays: Sequence[Array] | None = None) -> list[Array]:
        """On other inputs than its own where some are given."""
        results = self.call() if arrays is None else self.bind(arrays)()
        if isinstance(results, dict):  # of torch, in the order of its keys
            results = list(results.values())
        listed = results if isinstance(results, tuple | list) else [results]
        return [_array(one) for one in listed]

    def _library(self, spec: Mapping[str, Any], _: Sequence[Array]) -> Bind:
        made = Library(Path(spec["library"]), Signature.from_dict(spec["signature"]))
        self.library = made

        def bind(arrays: Sequence[Array]) -> Call:
            on_cpu = made.device.dlpack_device_type() == 1
            ready = [_aligned(one) for one in arrays] if on_cpu else made.placed(arrays)
            return lambda: made(*ready)

        return bind

    def _torch_cuda(self, spec: Mapping[str, Any], arrays: Sequence[Array]) -> Bind:
        return torch_cuda.binder(spec, torch_module, _inference_on, arrays)

    def _torch(self, spec: Mapping[str, Any], arrays: Sequence[Array]) -> Bind:
        import torch

        torch.set_num_threads(int(spec["threads"]))
        return _torch_bind(torch, str(spec["model"]), arrays)

    def _torch_compiled(self, spec: Mapping[str, Any], arrays: Sequence[Array]) -> Bind:
        """By torch's own compiler, the weights frozen: folded and packed as it likes them."""
        import torch

        config: Any = importlib.import_module("torch._inductor.config")
        config.freezing = True
        torch.set_num_threads(int(spec["threads"]))
        bind = _torch_bind(torch, str(spec["model"]), arrays, torch.compile)
        bind(arrays)()  # compiled by the first call, which is not timed
        return bind

    def _onnxruntime(self, spec: Mapping[str, Any], arrays: Sequence[Array]) -> Bind:
        onnxruntime: Any = _installed("onnxruntime")
        onnxruntime.disable_telemetry_events()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(spec["threads"])
        options.inter_op_num_threads = 1
        model = onnx_bytes(str(spec["model"]), arrays)
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        stored = {one.name for one in session.get_overridable_initializers()}
        names = [one.name for one in session.get_inputs() if one.name not in stored]

        def bind(arrays: Sequence[Array]) -> Call:
            fed = dict(zip(names, arrays, strict=True))
            return lambda: session.run(None, fed)

        return bind

    def _openvino(self, spec: Mapping[str, Any], arrays: Sequence[Array]) -> Bind:
        """In float32, which it leaves for bfloat16 where the processor has that."""
        openvino: Any = _installed("openvino")
        core = openvino.Core()
        options = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": spec["threads"]}
        stored = onnx_bytes(str(spec["model"]), arrays)
        network = core.read_model(stored)
        places = list(range(len(arrays)))
        if len(network.inputs) != len(arrays):  # it leaves out those that nothing reads
            names = _input_names(stored)
            places = [names.index(one.get_any_name()) for one in network.inputs]
        network.reshape({at: list(arrays[place].shape) for at, place in enumerate(places)})
        model = core.compile_model(network, "CPU", {**options, "PERFORMANCE_HINT": "LATENCY"})
        request = model.create_infer_request()

        def bind(arrays: Sequence[Array]) -> Call:
            fed = {at: arrays[place] for at, place in enumerate(places)}
            return lambda: [result.copy() for result in request.infer(fed).values()]

        return bind


def _torch_bind(
    torch: Any, model: str, arrays: Sequence[Array], ready: Callable[[Any], Any] = lambda m: m
) -> Bind:
    """Channels last where images come and the module can take that; `ready` says what runs."""

    def bind(arrays: Sequence[Array]) -> Call:
        return _inference(torch, run, _tensors(torch, arrays))

    def bind_last(arrays: Sequence[Array]) -> Call:
        return _inference(torch, run, _channels_last(torch, _tensors(torch, arrays)))

    module = torch_module(model)
    if any(array.ndim == 4 for array in arrays):
        try:
            run = module.to(memory_format=torch.channels_last)
            bind_last(arrays)()
            run = ready(run)
            return bind_last
        except RuntimeError:  # an exported graph may hold views that need its own layout
            module = torch_module(model)
    run = ready(module)
    return bind


def _installed(package: str) -> Any:
    if importlib.util.find_spec(package) is None:
        raise ImportError(f"it needs {package}, which is not installed: pip install {package}")
    return importlib.import_module(package)


def _tensors(torch: Any, arrays: Sequence[Array]) -> list[Any]:
    from tensorese.workloads.from_torch import tensor_of

    return [tensor_of(torch, array) for array in arrays]


def _array(value: Any) -> Array:
    if not hasattr(value, "requires_grad"):
        return value.numpy() if hasattr(value, "numpy") else np.asarray(value)
    import torch

    from tensorese.workloads.from_torch import array_of

    return array_of(torch, value.cpu())


def _inference_on(module: Any, tensors: Sequence[Any]) -> Call:
    import torch

    return _inference(torch, module, tensors)


def _inference(torch: Any, module: Any, tensors: Sequence[Any]) -> Call:
    args, kwargs = _nested(module, tensors)

    def call() -> Any:
        with torch.inference_mode():
            return module(*args, **kwargs)

    return call


def _nested(module: Any, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """As the module takes its inputs: an exported one may want some by name."""
    program = getattr(module, _PROGRAM, None)
    if program is None:
        return tuple(tensors), {}
    from tensorese.workloads.from_torch import nested

    return nested(program, tensors)


def _channels_last(torch: Any, tensors: Sequence[Any]) -> list[Any]:
    """Where torch's convolutions are fastest on CPUs."""
    last = torch.channels_last
    return [t.contiguous(memory_format=last) if t.ndim == 4 else t for t in tensors]


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
    """The file without the shapes that may follow `@`."""
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

    program = pt2.load(Path(model))
    module = _settled(program.module())
    setattr(module, _PROGRAM, program)
    return module


def _settled(module: Any) -> Any:
    """An exported program has one mode and raises when it is set, as the ONNX exporter does."""
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
        torch.onnx.export(
            _positional(torch, module), tuple(_tensors(torch, arrays)), stream, dynamo=False
        )
    return bytes(stream.getvalue())


def _input_names(stored: bytes) -> list[str]:
    """In the order that a network's inputs have here."""
    import onnx

    graph = onnx.load_model_from_string(stored).graph
    constant = {one.name for one in graph.initializer}
    return [one.name for one in graph.input if one.name not in constant]


def _positional(torch: Any, module: Any) -> Any:
    """Tensors in, tensors out: the exporter hands on no arguments by name, and no classes."""

    class Flat(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = module

        def forward(self, *tensors: Any) -> Any:
            args, kwargs = _nested(module, tensors)
            return tuple(torch.utils._pytree.tree_leaves(module(*args, **kwargs)))

    flat = Flat()
    flat.training = module.training
    return _settled(flat)


RIVALS = ("torch", "torch.compile", "onnxruntime", "openvino")
"""On a CPU."""


def quick() -> list[str]:
    """Those that are installed and ready within seconds; torch's compiler takes up to minutes."""
    return ["torch", *(name for name in RIVALS[2:] if importlib.util.find_spec(name) is not None)]


def keep_to(threads: int) -> None:
    """The same cores for every contender: the first that this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:threads])
