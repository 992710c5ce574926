"""CUDA kernels through NVRTC without the C++ headers that TVM puts before every one of them.

TVM's generated code begins with libcu++ headers for integer types and type traits; NVRTC reads
them for 0.7 s of a kernel's two seconds, and a plain kernel uses none of it. Here such a kernel
gets a prelude of its own; code with other headers, or that does not compile so, is TVM's to
compile. Flags are TVM's: the machine code is the same.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from typing import Any

import tvm_ffi

_CALLBACK = "tvm_callback_cuda_compile"
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
    try:
        nvrtc = importlib.import_module("cuda.bindings.nvrtc")
        nvcc = importlib.import_module("tvm.support.nvcc")
    except ImportError:
        return  # TVM says what is missing when the first kernel is built
    stock = nvcc.tvm_callback_cuda_compile

    def compile_kernel(code: str) -> Any:
        plain = None if any(os.environ.get(name) for name in _OWN_WAYS) else without_headers(code)
        binary = None
        with contextlib.suppress(Exception):  # TVM's way says clearly what is wrong
            binary = plain and _cubin(nvrtc, plain, _flags(nvcc))
        return binary or stock(code)

    tvm_ffi.register_global_func(_CALLBACK, compile_kernel, override=True)


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
