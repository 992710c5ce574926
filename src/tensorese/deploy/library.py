"""A compiled network in this process: `load(RUN)` gives a `Library` to call on arrays."""

from __future__ import annotations

import copy
import json
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tensorese import pages
from tensorese.deploy.build import sha256
from tensorese.deploy.errors import DeployError
from tensorese.deploy.threads import Pool
from tensorese.errors import TensoreseError, did_you_mean
from tensorese.records.run_folder import CERTIFICATE, LIBRARY, read_object
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm

ALIGNMENT = 64  # what TVM's generated code assumes of every pointer


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One input or output: its name, shape and element type."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name}: {'x'.join(map(str, self.shape)) or 'scalar'} {self.dtype}"

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "shape": list(self.shape), "dtype": self.dtype}


@dataclass(frozen=True, kw_only=True)
class Signature:
    """What a library takes and gives, and the target it was compiled for."""

    target: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    entry: str = "main"
    """The library's function."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "inputs": [one.to_dict() for one in self.inputs],
            "outputs": [one.to_dict() for one in self.outputs],
            "entry": self.entry,
        }

    @staticmethod
    def from_dict(row: Mapping[str, Any]) -> Signature:
        return Signature(
            target=str(row["target"]),
            inputs=tuple(_argument(one) for one in row["inputs"]),
            outputs=tuple(_argument(one) for one in row["outputs"]),
            entry=str(row.get("entry", "main")),
        )


def _argument(row: Mapping[str, Any]) -> Argument:
    shape = tuple(int(extent) for extent in row["shape"])
    return Argument(name=str(row["name"]), shape=shape, dtype=str(row["dtype"]))


def load(run: str | os.PathLike[str], *, pin: bool = True) -> Library | ShapedLibrary:
    """The verified library of a run folder, on this machine.

    The first call in a thread starts TVM's pool there, with the target's threads. With `pin`
    the calling thread stays on its core during a call, and only then.
    """
    folder = Path(run)
    certificate = read_object(folder / CERTIFICATE, "run `tensorese compile` on the folder first")
    try:
        rows = certificate.get("signatures") or [certificate["signature"]]
        signatures = [Signature.from_dict(row) for row in rows]
        signature = signatures[0]
        wanted = str(certificate["library"]["sha256"])
        str(json.loads(signature.target)["kind"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        raise DeployError(
            f"{folder / CERTIFICATE} must describe a library, but it does not; compile again"
        ) from None
    path = folder / LIBRARY
    if not path.is_file():
        raise DeployError(f"{path} is missing; run `tensorese compile {folder}`")
    if sha256(path) != wanted:
        raise DeployError(f"{path} is not the library its certificate verified; compile again")
    try:
        library = Library(path, signature, pin=pin)
    except TensoreseError:
        raise
    except Exception as error:  # TVM's errors have no common root
        line = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise DeployError(
            f"{path} must be a library for this TVM and machine, but {line}; compile again"
        ) from None
    if len(signatures) == 1:
        return library
    return ShapedLibrary([library, *(library.at(other) for other in signatures[1:])])


class Library:
    """Call it on numpy arrays or torch tensors, in order or by name; one call at a time.

    Returns the kind it gets: arrays for arrays, tensors for tensors, TVM's for what `placed` gave;
    a tuple for several outputs. Tensors on the library's device are read and returned there.
    """

    def __init__(self, path: Path, signature: Signature, *, pin: bool = True) -> None:
        self.path = path
        kind = str(json.loads(signature.target)["kind"])
        self.pool = Pool(Target.from_json(signature.target).threads, pin=pin and kind == "llvm")
        tvm = import_tvm(kind)
        self.device = tvm.device("cpu" if kind == "llvm" else kind, 0)
        if not self.device.exist:
            raise DeployError(f"{path} is compiled for {kind}, but this machine has no such device")
        with pages.Fresh() as fresh:  # the weights are copied out of the file here
            module = tvm.runtime.load_module(str(path))
            self.machine = tvm.relax.VirtualMachine(module, self.device)
        self.huge = fresh.huge
        """Bytes on huge pages."""
        self._place = (self.device.dlpack_device_type(), 0)
        self._ffi: Any = __import__("tvm_ffi")
        self._lock = threading.Lock()
        self._take(signature)

    def _take(self, signature: Signature) -> None:
        self.signature = signature
        self._main = self.machine[signature.entry]
        self._ran = False
        self._staged: dict[str, Any] = {}

    def at(self, signature: Signature) -> Library:
        """Another shape of the same library: the same machine and weights."""
        other = copy.copy(self)
        other._take(signature)
        return other

    def __repr__(self) -> str:
        inputs = ", ".join(map(str, self.signature.inputs))
        outputs = ", ".join(map(str, self.signature.outputs))
        return f"Library({self.path.name}: ({inputs}) -> ({outputs}))"

    def __call__(self, *values: Any, **named: Any) -> Any:
        inputs = self._in_order(values, named) if named else values
        if len(inputs) != len(self.signature.inputs):
            wanted = ", ".join(map(str, self.signature.inputs))
            raise DeployError(f"{len(inputs)} inputs were given, but the network takes ({wanted})")
        with self._lock:
            pairs = zip(self.signature.inputs, inputs, strict=True)
            tensors = [self._tensor(spec, value) for spec, value in pairs]
            with self.pool:
                results = self._main(*tensors) if self._ran else self._first(tensors)
            if self._place[0] != 1:
                self.device.sync()
            outputs = results if len(self.signature.outputs) > 1 or _many(results) else [results]
            made = tuple(self._like_inputs(one, inputs) for one in outputs)
        return made if len(made) > 1 else made[0]

    def placed(self, values: Sequence[Any]) -> list[Any]:
        """TVM's tensors of the same on the library's device, which calls read without a copy."""
        tvm = import_tvm()
        tensors = [self._tensor(*pair) for pair in zip(self.signature.inputs, values, strict=True)]
        copies = [tvm.runtime.empty(one.shape, one.dtype, self.device) for one in tensors]
        return [tensor.copyto(copy) for tensor, copy in zip(tensors, copies, strict=True)]

    def _first(self, tensors: Sequence[Any]) -> Any:
        """The first run takes the memory of all later ones."""
        with pages.Fresh() as fresh:
            results = self._main(*tensors)
        self.huge += fresh.huge
        self._ran = True
        return results

    def _in_order(self, values: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        names = [one.name for one in self.signature.inputs]
        for name in named:
            if name not in names[len(values) :]:
                near = did_you_mean(name, names)
                raise DeployError(f"no input {name!r} is left to give{near}; inputs: {names}")
        return [*values, *(named[name] for name in names[len(values) :] if name in named)]

    def _tensor(self, spec: Argument, value: Any) -> Any:
        shape, dtype = tuple(getattr(value, "shape", ())), str(getattr(value, "dtype", ""))
        if not hasattr(value, "__dlpack__"):
            what = type(value).__name__
            raise DeployError(f"input {spec} must be an array or a tensor, but got a {what}")
        if shape != spec.shape or dtype.removeprefix("torch.") != spec.dtype:
            got = f"{'x'.join(map(str, shape)) or 'scalar'} {dtype.removeprefix('torch.')}"
            raise DeployError(f"input {spec} must hold, but got {got}; convert it first")
        if getattr(value, "requires_grad", False):
            value = value.detach()
        if self._readable_here(value):
            with suppress(ValueError, BufferError, RuntimeError):  # read-only, say: it is copied
                return self._ffi.from_dlpack(
                    value, require_alignment=ALIGNMENT, require_contiguous=True
                )
        return self._staged_copy(spec, value)

    def _readable_here(self, value: Any) -> bool:
        """Asked first, because being refused takes TVM 20 us."""
        if isinstance(value, np.ndarray):
            at, whole, on_cpu = value.ctypes.data, value.flags.c_contiguous, True
        elif hasattr(value, "is_cuda"):
            at, whole, on_cpu = value.data_ptr(), value.is_contiguous(), not value.is_cuda
        else:
            return bool(value.__dlpack_device__() == self._place)
        return at % ALIGNMENT == 0 and whole and on_cpu == (self._place[0] == 1)

    def _staged_copy(self, spec: Argument, value: Any) -> Any:
        if spec.name not in self._staged:
            tvm = import_tvm()
            self._staged[spec.name] = tvm.runtime.empty(spec.shape, spec.dtype, self.device)
        if hasattr(value, "cpu"):
            value = value.cpu().contiguous()
            if spec.dtype == "bfloat16":  # which numpy has not: its bits are copied
                value = value.view(__import__("torch").int16)
        array = value.numpy() if hasattr(value, "cpu") else np.asarray(value)
        self._staged[spec.name].copyfrom(np.ascontiguousarray(array))
        return self._staged[spec.name]

    def _like_inputs(self, output: Any, inputs: Sequence[Any]) -> Any:
        if any(output.data_ptr() == staged.data_ptr() for staged in self._staged.values()):
            output = output.copyto(self.device)  # a view of an input: the next call overwrites it
        if any(hasattr(value, "requires_grad") for value in inputs):
            torch = __import__("torch")
            return torch.from_dlpack(output)
        if inputs and not any(isinstance(value, np.ndarray) for value in inputs):
            return output
        if self._place[0] == 1 and output.dtype != "bfloat16":
            return np.from_dlpack(output)
        return output.numpy()


class ShapedLibrary:
    """A library for several shapes: each call goes to the one that its inputs have.

    `shapes` are the libraries of one shape, in the order they were asked for.
    """

    def __init__(self, shapes: Sequence[Library]) -> None:
        self.shapes = tuple(shapes)
        self.path = self.shapes[0].path

    def __repr__(self) -> str:
        return f"ShapedLibrary({', '.join(map(repr, self.shapes))})"

    def __call__(self, *values: Any, **named: Any) -> Any:
        first = self.shapes[0]
        inputs = first._in_order(values, named) if named else list(values)
        got = [tuple(getattr(value, "shape", ())) for value in inputs]
        for library in self.shapes:
            if got == [one.shape for one in library.signature.inputs]:
                return library(*inputs)
        takes = " or ".join(f"({_extents(one)})" for one in self.shapes)
        given = ", ".join("x".join(map(str, shape)) or "scalar" for shape in got)
        raise DeployError(
            f"inputs must have one of the shapes {takes}, but got ({given}); tune with that shape "
            "among them, or pad to one of these"
        )


def _extents(library: Library) -> str:
    return ", ".join(str(one).rpartition(" ")[0] for one in library.signature.inputs)


def _many(results: Any) -> bool:
    """TVM returns an array of outputs where the network returns a tuple, even of one."""
    return not hasattr(results, "__dlpack__")
