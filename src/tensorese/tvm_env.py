"""How this package imports TVM: the checked pair, without torch, without foreign intrinsics.

Three traps, measured on 2 cores: TVM 0.27 with ffi 0.1.15 segfaults without a word; `import tvm`
pulls torch in (2.5 s, 400 MB) when it is installed; the first `TuneContext` parses the tensor
intrinsics of every backend (20 s) even for `llvm`. All three are settled here, before the import.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import sys
import types
from pathlib import Path
from typing import Any

from tensorese import __version__, lowering
from tensorese.errors import TensoreseError

FIRST_BAD_FFI = (0, 1, 15)
CUDA_RUNTIME = "libcudart.so.13"  # that the wheel's CUDA runtime is linked with
FFI_REMEDY = "pip install 'apache-tvm-ffi>=0.1.14.post0,<0.1.15'"

# Packages of `tvm.s_tir.tensor_intrin`, by the target kind that tensorizes with them.
_INTRINSICS = {
    "x86": "llvm",
    "arm_cpu": "arm",
    "riscv_cpu": "riscv",
    "hexagon": "hexagon",
    "cuda": "cuda",
    "rocm": "rocm",
    "metal": "metal",
}
_INTRIN_ROOT = "tvm.s_tir.tensor_intrin"
_TAUGHT = "__tensorese__"  # set on the module that has been taught how we build


class TvmPairError(TensoreseError):
    """The installed TVM and ffi are known to crash together."""


def version_of(package: str) -> str:
    """The installed version, found without importing; empty when absent."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        # A machine fed by an unpacked archive has the module but no metadata.
        return ""


def check_pair() -> None:
    """Refuses the pair before it can segfault inside C++ with nothing printed."""
    ffi = version_of("apache-tvm-ffi")
    if tuple(int(part) for part in ffi.split(".")[:3] if part.isdigit()) >= FIRST_BAD_FFI:
        tvm_version = version_of("apache-tvm")
        raise TvmPairError(
            f"apache-tvm-ffi must be older than 0.1.15 for apache-tvm {tvm_version}, "
            f"but got {ffi} (it segfaults); run: {FFI_REMEDY}"
        )


def import_tvm(kind: str = "llvm") -> Any:
    """`tvm`, with the intrinsics of `kind` only; later calls widen to another kind.

    torch is hidden during the import alone: a process that wants both imports it afterwards.
    """
    check_pair()
    if "tvm" not in sys.modules:
        _load_cuda_runtime()
    hide_torch = "tvm" not in sys.modules and "torch" not in sys.modules
    if hide_torch:
        sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        tvm = importlib.import_module("tvm")
    finally:
        if hide_torch:
            del sys.modules["torch"]
    if not getattr(tvm, _TAUGHT, False):
        setattr(tvm, _TAUGHT, True)
        lowering.register(tvm)
    _stub_foreign_intrinsics(kind)
    return tvm


def _load_cuda_runtime() -> None:
    """pip puts it where no loader looks; TVM without it sees no GPU and says nothing."""
    nvidia = importlib.util.find_spec("nvidia")
    for folder in (nvidia.submodule_search_locations or []) if nvidia else []:
        for library in Path(folder).glob(f"cu*/lib/{CUDA_RUNTIME}"):
            _loads(str(library))


def lacks_cuda_runtime() -> str:
    """What to do where there is a driver, but not the runtime that TVM needs; else empty."""
    if not _loads("libcuda.so.1") or _loads(CUDA_RUNTIME):
        return ""
    remedy = "pip install 'nvidia-cuda-runtime>=13,<14'"
    return f"TVM needs {CUDA_RUNTIME} beside the driver; run: {remedy}"


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True


def _stub_foreign_intrinsics(kind: str) -> None:
    for package, owner in _INTRINSICS.items():
        name = f"{_INTRIN_ROOT}.{package}"
        loaded = sys.modules.get(name)
        if owner == kind:
            if getattr(loaded, "__tensorese_stub__", False):
                del sys.modules[name]
                if _INTRIN_ROOT in sys.modules:  # else TVM imports it itself, when it is needed
                    importlib.import_module(name)
        elif loaded is None:
            stub = types.ModuleType(name)
            stub.__tensorese_stub__ = True  # type: ignore[attr-defined]
            sys.modules[name] = stub


def set_threads(threads: int) -> None:
    """Fixes TVM's pool size; TVM alone would use half the logical cores. Before the first run."""
    os.environ["TVM_NUM_THREADS"] = str(threads)


def toolchain_of(kind: str) -> dict[str, str]:
    """What compiled a program, for its record; imports TVM."""
    tvm = import_tvm(kind)
    ffi = importlib.import_module("tvm_ffi")
    versions = {
        "tensorese": __version__,
        "tvm": version_of("apache-tvm") or str(tvm.__version__),
        "tvm_ffi": version_of("apache-tvm-ffi") or str(getattr(ffi, "__version__", "")),
        "llvm": str(tvm.target.codegen.llvm_version_major()),
        "python": platform.python_version(),
    }
    if kind in lowering.VERSIONS:
        versions["lowering"] = lowering.VERSIONS[kind]
    if kind == "cuda":
        versions["cuda"] = str(tvm.support.libinfo().get("CUDA_VERSION", ""))
    return versions
