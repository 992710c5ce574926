"""Without NVRTC or a GPU: a stand-in compiler tells what it was given."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import tvm_ffi

from tensorese.measure import nvrtc
from tensorese.tvm_env import import_tvm

pytestmark = pytest.mark.tvm

TARGET = {"kind": "cuda", "arch": "sm_90", "max_threads_per_block": 1024}


@pytest.fixture(scope="module")
def source() -> str:
    """What TVM really generates."""
    target = import_tvm().target.Target(TARGET)
    from tensorese.measure.build_worker import compile_module, sentinel_module

    library = compile_module(sentinel_module("cuda"), target)
    return str(library.imports[0].inspect_source())


class Compiler(ModuleType):
    """Refuses code with the word `refuse`."""

    nvrtcResult = SimpleNamespace(NVRTC_SUCCESS=0)

    def __init__(self) -> None:
        super().__init__("cuda.bindings.nvrtc")
        self.compiled: list[tuple[str, list[bytes]]] = []
        self.open = 0
        self.raises = False

    def nvrtcCreateProgram(self, code: bytes, *_: Any) -> tuple[int, str]:
        if self.raises:
            raise RuntimeError("libnvrtc.so cannot be found")
        self.open += 1
        return 0, code.decode()

    def nvrtcCompileProgram(self, program: str, n: int, flags: list[bytes]) -> tuple[int]:
        self.compiled.append((program, flags))
        return (int("refuse" in program),)

    def nvrtcGetCUBINSize(self, program: str) -> tuple[int, int]:
        return 0, 4

    def nvrtcGetCUBIN(self, program: str, binary: bytearray) -> tuple[int]:
        binary[:] = b"ours"
        return (0,)

    def nvrtcDestroyProgram(self, program: str) -> None:
        self.open -= 1


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiler]:
    found = Compiler()
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", ModuleType("cuda.bindings"))
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", found)
    stock = importlib.import_module("tvm.support.nvcc")
    before = stock.tvm_callback_cuda_compile
    monkeypatch.setattr(stock, "tvm_callback_cuda_compile", lambda code: b"stock")
    nvrtc.install()
    yield found
    tvm_ffi.register_global_func(nvrtc._CALLBACK, before, override=True)


def compiled(code: str) -> bytes:
    with import_tvm().target.Target(TARGET):
        return bytes(tvm_ffi.get_global_func(nvrtc._CALLBACK)(code))


def test_a_plain_kernel_needs_no_header(source: str) -> None:
    plain = nvrtc.without_headers(source)
    assert plain is not None
    assert "#include" not in plain
    assert "main_kernel" in plain


@pytest.mark.parametrize("more", ["#include <cuda_fp16.h>\n", "std::is_same<int, int> same;\n"])
def test_other_needs_are_left_to_tvm(source: str, more: str) -> None:
    assert nvrtc.without_headers(source + more) is None


def test_a_new_header_in_front_is_left_to_tvm(source: str) -> None:
    assert nvrtc.without_headers("#include <cuda_bf16.h>\n" + source) is None
    assert nvrtc.without_headers("extern void f();") is None


def test_plain_kernels_are_compiled_here_with_the_flags_of_tvm(
    compiler: Compiler, source: str
) -> None:
    assert compiled(source) == b"ours"
    flags = compiler.compiled[0][1]
    assert b"--gpu-architecture=sm_90" in flags
    assert b"--use_fast_math" in flags
    assert b"--ptxas-options=--register-usage-level=10" in flags
    assert compiler.open == 0


def test_what_does_not_compile_is_left_to_tvm(compiler: Compiler, source: str) -> None:
    assert compiled(source + "refuse") == b"stock"
    assert compiler.open == 0
    compiler.raises = True
    assert compiled(source) == b"stock"


def test_whoever_sets_options_of_tvm_gets_tvm(
    compiler: Compiler, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TVM_CUDA_NVRTC_EXTRA_OPTS", "--ftz=false")
    assert compiled(source) == b"stock"
    assert not compiler.compiled


def test_without_the_bindings_nothing_changes(
    compiler: Compiler, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tvm_ffi.register_global_func(nvrtc._CALLBACK, lambda code: b"as before", override=True)
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    nvrtc.install()
    assert compiled(source) == b"as before"


def two_kernels() -> Any:
    """As a network's module has them on their way to the device."""
    tvm = import_tvm()
    from tensorese.measure.build_worker import sentinel_module

    one = sentinel_module("cuda")["main"]
    other = one.with_attr("global_symbol", "other")
    return tvm.IRModule({"main": one, "other": other})


def test_every_kernel_of_a_network_is_a_module_of_its_own(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    tvm = import_tvm()
    asked: list[tuple[list[str], int]] = []

    def compile_all(sources: Any, processes: int) -> dict[str, bytes]:
        asked.append((list(sources), processes))
        return {asked[0][0][0]: b"side by side"}

    monkeypatch.setattr(nvrtc, "_compiled", compile_all)
    stock = tvm_ffi.get_global_func(nvrtc._BUILD)

    def build(module: Any, target: Any) -> Any:
        """As TVM's does where it has a CUDA runtime."""
        made = stock(module, target)
        tvm_ffi.get_global_func(nvrtc._CALLBACK)(made.inspect_source())
        return made

    tvm_ffi.register_global_func(nvrtc._BUILD, build, override=True)
    try:
        with tvm.target.Target(TARGET) as target, nvrtc.side_by_side(4):
            library = tvm.build(two_kernels(), target=target)
    finally:
        tvm_ffi.register_global_func(nvrtc._BUILD, stock, override=True)
    ((sources, processes),) = asked
    assert processes == 4 and len(sources) == 2 and sources[0] != sources[1]
    assert len(library.imports[0].imports) == 1
    (again,) = compiler.compiled  # what was compiled side by side is not compiled again
    assert again[0] == nvrtc.without_headers(sources[1])


def test_a_process_compiles_its_share_of_the_files(
    compiler: Compiler, source: str, tmp_path: Any
) -> None:
    (tmp_path / "good.cu").write_text(source)
    (tmp_path / "bad.cu").write_text(source + "refuse")
    files = [str(tmp_path / "bad.cu"), str(tmp_path / "good.cu")]
    nvrtc.main(["--gpu-architecture=sm_90", "--", *files])
    assert (tmp_path / "good.cubin").read_bytes() == b"ours"
    assert not (tmp_path / "bad.cubin").exists()
    assert compiler.compiled[0][1] == [b"--gpu-architecture=sm_90"]


def test_without_nvrtc_nothing_is_compiled_beforehand(source: str) -> None:
    with import_tvm().target.Target(TARGET):
        assert nvrtc._compiled([source], 2) == {}
