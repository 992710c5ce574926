"""CUDA kernels through NVRTC without the C++ headers that TVM puts before every one of them.

TVM's generated code begins with libcu++ headers for integer types and type traits; NVRTC reads
them for 0.7 s of a kernel's two seconds, and a plain kernel uses none of it. Here such a kernel
gets a prelude of its own; code with other headers, or that does not compile so, is TVM's to
compile. Flags are TVM's: the machine code is the same.

TVM compiles all kernels of a network as one source, on one core. `side_by_side` makes a module of
each, and all cores compile them: NVRTC has a lock, so each core has a process, which runs this
file and imports NVRTC alone.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_CALLBACK = "tvm_callback_cuda_compile"
_BUILD = "target.build.cuda"
_OWN_WAYS = ("TVM_CUDA_COMPILE_MODE", "TVM_CUDA_NVRTC_EXTRA_OPTS", "TVM_KERNEL_DUMP")
_BODY = re.compile(r"^#if \(\(\(__CUDACC_VER_MAJOR__", re.MULTILINE)  # first line after headers
_INCLUDE = re.compile(r"^\s*#\s*include\s*<([^>]*)>", re.MULTILINE)
_NOT_NEEDED = {"cuda/std/cstdint", "cuda/std/type_traits", "cstdint", "type_traits", "cuda.h"}
_PRELUDE = """\
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define __asm__ asm
#define __volatile__ volatile
#define INFINITY __int_as_float(0x7f800000)
"""


def install() -> None:
    """Makes TVM of this process compile its CUDA kernels here, if NVRTC can be had."""
    _install({})


def _install(compiled: Mapping[str, bytes]) -> None:
    try:
        nvrtc = importlib.import_module("cuda.bindings.nvrtc")
        nvcc = importlib.import_module("tvm.support.nvcc")
    except ImportError:
        return  # TVM says what is missing when the first kernel is built
    stock = nvcc.tvm_callback_cuda_compile

    def compile_kernel(code: str) -> Any:
        binary: Any = compiled.get(code)
        plain = None if binary else _plain(code)
        with contextlib.suppress(Exception):  # TVM's way says clearly what is wrong
            binary = binary or (plain and _cubin(nvrtc, plain, _flags(nvcc)))
        return binary or stock(code)

    _register(_CALLBACK, compile_kernel)


def _nvrtc() -> Any:
    """The bindings; None where they, or the library that they are of, cannot be had."""
    try:
        return importlib.import_module("cuda.bindings.nvrtc")
    except (ImportError, RuntimeError):
        return None


def _register(name: str, function: Callable[..., Any]) -> None:
    importlib.import_module("tvm_ffi").register_global_func(name, function, override=True)


def _plain(code: str) -> str | None:
    return None if any(os.environ.get(name) for name in _OWN_WAYS) else without_headers(code)


@contextlib.contextmanager
def side_by_side(processes: int) -> Iterator[None]:
    """Within it TVM builds every CUDA kernel as a module of its own, `processes` at a time."""
    install()
    tvm = importlib.import_module("tvm")
    stock, callback = tvm.get_global_func(_BUILD), tvm.get_global_func(_CALLBACK)

    def build(module: Any, target: Any) -> Any:
        parts = [tvm.IRModule({gv: f}, attrs=module.attrs) for gv, f in module.functions.items()]
        sources: list[str] = []

        def read(code: str) -> bytes:
            sources.append(code)
            return b"\0"

        # Code is generated twice, which takes milliseconds: to read it, and for good.
        _register(_CALLBACK, read)
        for part in parts:
            stock(part, target)
        _install(_compiled(sources, processes))
        first, *others = [stock(part, target) for part in parts]
        for other in others:
            first.import_module(other)
        return first

    _register(_BUILD, build)
    try:
        yield
    finally:
        _register(_BUILD, stock)
        _register(_CALLBACK, callback)


def _compiled(sources: Iterable[str], processes: int) -> dict[str, bytes]:
    """What compiles without headers; the rest is left to whoever asks for it."""
    plain = {code: without for code in sources if (without := _plain(code))}
    nvcc = importlib.import_module("tvm.support.nvcc")
    if not plain or not _nvrtc():
        return {}
    flags = [flag.decode() for flag in _flags(nvcc)]
    longest = sorted(plain, key=len, reverse=True)
    shares = [share for at in range(processes) if (share := longest[at::processes])]
    with tempfile.TemporaryDirectory(prefix="tensorese-nvrtc-") as folder:
        names = {code: Path(folder) / f"{at}.cu" for at, code in enumerate(longest)}
        for code, path in names.items():
            path.write_text(plain[code])
        python = [sys.executable, "-P", __file__, *flags, "--"]
        running = [
            subprocess.Popen([*python, *(str(names[code]) for code in share)]) for share in shares
        ]
        for process in running:
            process.wait()
        made = {code: path.with_suffix(".cubin") for code, path in names.items()}
        return {code: path.read_bytes() for code, path in made.items() if path.exists()}


def without_headers(code: str) -> str | None:
    """The kernel behind our prelude; None where it needs a header after all."""
    body = _BODY.search(code)
    if body is None:
        return None
    head, rest = code[: body.start()], code[body.start() :]
    if not set(_INCLUDE.findall(head)) <= _NOT_NEEDED or "#include" in rest or "std::" in rest:
        return None
    return _PRELUDE + rest


def _flags(nvcc: Any) -> list[bytes]:
    version = nvcc.get_target_compute_version()  # asks the target in scope, then the device
    flags = [
        f"--gpu-architecture=sm_{version.replace('.', '')}",
        "-default-device",
        "--device-int128",
        "--use_fast_math",
    ]
    flags += [f"--ptxas-options={flag}" for flag in nvcc._ptxas_option_flags()]
    return [flag.encode() for flag in flags]


def _cubin(nvrtc: Any, code: str, flags: list[bytes]) -> bytearray | None:
    ok = nvrtc.nvrtcResult.NVRTC_SUCCESS
    result, program = nvrtc.nvrtcCreateProgram(code.encode(), b"tvm_kernels.cu", 0, None, None)
    if result != ok:
        return None
    try:
        (result,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        if result != ok:
            return None
        result, size = nvrtc.nvrtcGetCUBINSize(program)
        if result != ok or not size:
            return None
        binary = bytearray(size)
        (result,) = nvrtc.nvrtcGetCUBIN(program, binary)
        return binary if result == ok else None
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def main(arguments: Sequence[str]) -> None:
    """`FLAGS -- SOURCES`: compiles each file; one that fails leaves no `.cubin` beside it."""
    nvrtc = importlib.import_module("cuda.bindings.nvrtc")
    cut = arguments.index("--")
    for path in map(Path, arguments[cut + 1 :]):
        flags = [flag.encode() for flag in arguments[:cut]]
        binary = _cubin(nvrtc, path.read_text(), flags)
        if binary:
            path.with_suffix(".cubin").write_bytes(binary)


if __name__ == "__main__":
    main(sys.argv[1:])
