"""Is this machine fit to tune on? Each check has a value and, if it fails, the fix."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from tensorese.errors import TensoreseError
from tensorese.records.nouns import Status
from tensorese.tvm_env import (
    FFI_REMEDY,
    TvmPairError,
    check_pair,
    import_tvm,
    lacks_cuda_runtime,
    version_of,
)

EXTRAS = {
    "onnx": ("onnx",),
    "baselines": ("lightgbm", "xgboost"),
    "ray": ("ray",),
}
_MIN_FREE_GB = 1.0


@dataclass(frozen=True, kw_only=True)
class Check:
    """One line of the report. A failed one that is `required` makes the machine unhealthy."""

    name: str
    ok: bool
    value: str
    fix: str = ""
    required: bool = True


def diagnose() -> Iterator[Check]:
    """Checks in the order they depend on each other; each is reported as soon as it is known."""
    yield _python()
    pair = _pair()
    yield pair
    yield _linker()
    yield _disk()
    yield from _extras()
    if pair.ok:
        yield from _machine()
        yield _canary()


def _python() -> Check:
    return Check(
        name="python",
        ok=(3, 11) <= sys.version_info[:2] <= (3, 12),
        value=platform.python_version(),
        fix="use Python 3.11 or 3.12: TVM's wheels are built for these",
    )


def _pair() -> Check:
    versions = f"tvm {version_of('apache-tvm')}, ffi {version_of('apache-tvm-ffi')}"
    try:
        check_pair()
        installed = importlib.util.find_spec("tvm") is not None
    except TvmPairError:
        return Check(name="tvm pair", ok=False, value=f"{versions} (segfaults)", fix=FFI_REMEDY)
    return Check(
        name="tvm pair",
        ok=installed,
        value=versions if installed else "tvm is not installed",
        fix=f"pip install apache-tvm==0.27.0.post1 && {FFI_REMEDY}",
    )


def _linker() -> Check:
    tools = [tool for tool in ("ld", "gcc") if shutil.which(tool)]
    fix = "install gcc and binutils: TVM links compiled programs with them"
    return Check(name="linker", ok=len(tools) == 2, value=", ".join(tools) or "none", fix=fix)


def _disk() -> Check:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free / 1e9
    return Check(
        name="free disk",
        ok=free >= _MIN_FREE_GB,
        value=f"{free:.1f} GB in {folder}",
        fix=f"free at least {_MIN_FREE_GB:g} GB there, or set TMPDIR",
    )


def _extras() -> Iterator[Check]:
    for extra, modules in EXTRAS.items():
        missing = [name for name in modules if importlib.util.find_spec(name) is None]
        yield Check(
            name=f"extra {extra}",
            ok=not missing,
            value="installed" if not missing else f"lacks {', '.join(missing)}",
            fix=f"pip install 'tensorese[{extra}]'",
            required=False,
        )


def _machine() -> Iterator[Check]:
    from tensorese.targets import host_cpu

    tvm = import_tvm()
    enabled = bool(tvm.runtime.enabled("llvm"))
    version = f"LLVM {tvm.target.codegen.llvm_version_major()}" if enabled else "absent"
    yield Check(name="llvm", ok=enabled, value=version, fix="install a TVM built with LLVM")
    cpu = host_cpu()
    caches = ", ".join(f"{name} {size // 1024} KiB" for name, size in cpu.caches.items())
    yield Check(
        name="host target",
        ok=True,
        value=f"{cpu.mcpu}, {cpu.cores} cores, {cpu.vector_bits}-bit vectors, {caches}",
    )
    yield _gpus(tvm)


def _gpus(tvm: object) -> Check:
    names = []
    for index in range(8):
        device = tvm.cuda(index)  # type: ignore[attr-defined]
        if not device.exist:
            break
        names.append(f"{device.device_name} (sm_{str(device.compute_version).replace('.', '')})")
    lacks = "" if names else lacks_cuda_runtime()
    return Check(
        name="gpus",
        ok=bool(names),
        value=", ".join(names) or ("a driver, but no CUDA runtime" if lacks else "none"),
        fix=lacks or "only needed for CUDA targets",
        required=False,
    )


def _canary() -> Check:
    """One real matmul through the whole farm: built, run, verified."""
    from tensorese.measure.candidates import from_module
    from tensorese.measure.config import FarmConfig
    from tensorese.measure.farm import Farm
    from tensorese.targets import Target

    tvm = import_tvm()
    a, b = (tvm.te.placeholder((128, 128), name=name) for name in "ab")
    k = tvm.te.reduce_axis((0, 128), name="k")
    c = tvm.te.compute((128, 128), lambda i, j: tvm.te.sum(a[i, k] * b[k, j], axis=k), name="c")
    module = tvm.IRModule({"main": tvm.te.create_prim_func([a, b, c])})
    try:
        with Farm(Target.parse("host"), FarmConfig(verify="all", build_workers=1)) as farm:
            (result,) = farm.measure([from_module(module)])
    except TensoreseError as error:
        return Check(name="canary", ok=False, value=str(error), fix="see the checks above")
    passed = result.status is Status.OK and bool(result.verification.get("passed"))
    times = f"built in {result.build_secs:.2f} s, ran in {result.latency * 1e6:.0f} us"
    return Check(
        name="canary",
        ok=passed,
        value=f"matmul {times}, right" if passed else f"{result.status}: {result.error}",
        fix="a program must build, run and be right; see the error",
    )
