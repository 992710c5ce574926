"""Pipelined programs of a GPU copy asynchronously, and all of them compile so."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensorese.lowering import async_copies, pass_config
from tensorese.measure import build_worker
from tensorese.measure.jobs import trace_of
from tensorese.records.nouns import Program
from tensorese.records.store import Store
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm

pytestmark = pytest.mark.tvm

H200 = Path(__file__).parents[2] / "data" / "h200"


@pytest.fixture(scope="module")
def target() -> Target:
    return Target.parse("cuda:h200")


@pytest.fixture(scope="module")
def programs() -> list[Program]:
    """Half of them pipelined, of many workloads."""
    with Store.open(H200) as store:
        every = [m.program for m in store.measurements(platform="h200") if m.latency]
    pipelined = [p for p in every if "software_pipeline_stage" in p.sketch.body]
    plain = [p for p in every if "software_pipeline_stage" not in p.sketch.body]
    return [*pipelined[::1500], *plain[::4000]]


def source(program: Program, target: Target) -> str:
    tvm = import_tvm("cuda")
    job = {"target": target.to_json(), "module": "", "workload": program.workload.module}
    module, _ = build_worker.load_scheduled({**job, "trace": trace_of(program, target)})
    library = build_worker.compile_module(module, tvm.target.Target(json.loads(target.to_json())))
    return str(library.imports[0].inspect_source())


@pytest.fixture(autouse=True)
def no_compiler() -> Iterator[None]:
    """What NVRTC makes of the source is no question here."""
    import tvm_ffi

    name = "tvm_callback_cuda_compile"
    import_tvm("cuda")
    before: Any = tvm_ffi.get_global_func(name, allow_missing=True)
    tvm_ffi.register_global_func(name, lambda code: b"\0", override=True)
    yield
    if before is not None:
        tvm_ffi.register_global_func(name, before, override=True)


def test_exactly_the_pipelined_programs_copy_asynchronously(
    programs: list[Program], target: Target
) -> None:
    for program in programs:
        pipelined = "software_pipeline_stage" in program.sketch.body
        assert ("cp.async" in source(program, target)) == pipelined, program.workload.operator


def test_cpus_are_not_asked_to() -> None:
    assert "tirx.use_async_copy" not in pass_config("llvm")
    assert pass_config("cuda")["tirx.use_async_copy"]


def copied(offset: int, stride: int) -> str:
    """Four numbers at a time from `offset` to a boundary, asked for as an asynchronous copy."""
    tvm = import_tvm("cuda")
    tirx, stmt = tvm.tirx, importlib.import_module("tvm.tirx.stmt")
    source = tirx.decl_buffer((64,), "float32", "source")
    shared = tirx.decl_buffer((64,), "float32", "shared", scope="shared")
    i = tirx.Var("i", "int32")
    value = tirx.BufferLoad(source, [tirx.Ramp(i * 4 + offset, stride, 4)])
    store = stmt.BufferStore(shared, value, [tirx.Ramp(i * 4, 1, 4)])
    body = stmt.AttrStmt(tirx.IntImm("int32", 0), "async_scope", 1, store)
    function = tirx.PrimFunc([source, shared], stmt.For(i, 0, 8, stmt.ForKind.SERIAL, body))
    return str(async_copies.aligned_only(tvm)(tvm.IRModule({"main": function}))["main"])


@pytest.mark.parametrize(
    ("offset", "stride", "is_asynchronous"),
    [(0, 1, True), (4, 1, True), (1, 1, False), (2, 1, False), (3, -1, False)],
)
def test_vectors_off_their_boundary_or_backwards_are_waited_for(
    offset: int, stride: int, is_asynchronous: bool
) -> None:
    assert ("async_scope" in copied(offset, stride)) == is_asynchronous
