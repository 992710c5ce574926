"""The farm on a real CUDA device: built in parallel, timed alone, faults contained."""

from __future__ import annotations

import time
from typing import Any

import pytest

import farm_support as programs
from tensorese.identity import workload_of
from tensorese.measure.base import Candidate
from tensorese.measure.candidates import from_module, from_schedule
from tensorese.measure.config import FarmConfig
from tensorese.measure.farm import Farm
from tensorese.measure.timing import TimingConfig
from tensorese.records.nouns import Status
from tensorese.targets import Target

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def target() -> Target:
    from tensorese.errors import TargetError

    try:
        return Target.parse("cuda")
    except TargetError as error:
        pytest.skip(str(error))


def tiled(n: int, threads: int) -> Candidate:
    module = programs.matmul(n, n, n)
    schedule = programs.tvm.s_tir.Schedule(module)
    block = schedule.get_sblock("c")
    i, j, _ = schedule.get_loops(block)
    outer, inner = schedule.split(schedule.fuse(i, j), [None, threads])
    schedule.bind(outer, "blockIdx.x")
    schedule.bind(inner, "threadIdx.x")
    return from_schedule(schedule, workload_of(module), origin="random")


def bound(module: Any, workload: Any = None) -> Candidate:
    schedule = programs.tvm.s_tir.Schedule(module)
    loop = schedule.get_loops(schedule.get_sblock("y"))[0]
    schedule.bind(loop, "threadIdx.x")
    return from_module(schedule.mod, workload or workload_of(module), origin="random")


def out_of_bounds() -> Candidate:
    """Reads far outside its buffer."""
    tvm = programs.tvm
    x = tvm.te.placeholder((64,), name="x")
    y = tvm.te.compute((64,), lambda i: x[i * 1073741 * 31], name="y")
    return bound(tvm.IRModule({"main": tvm.te.create_prim_func([x, y])}))


def test_an_illegal_access_costs_one_candidate(target: Target) -> None:
    batch = [tiled(128, 64), out_of_bounds(), tiled(128, 128), tiled(128, 256)]
    with Farm(target, FarmConfig(verify="all")) as farm:
        results = farm.measure(batch)
    assert [m.status for m in results] == [
        Status.OK,
        Status.RUN_ERROR,
        Status.OK,
        Status.OK,
    ], [m.error for m in results]
    assert all(m.verification["passed"] for m in results if m.status is Status.OK)


def test_too_many_threads_do_not_build_or_run(target: Target) -> None:
    with Farm(target, FarmConfig()) as farm:
        bad, good = farm.measure([tiled(128, 4096), tiled(128, 32)])
    assert bad.status in (Status.BUILD_ERROR, Status.RUN_ERROR)
    assert good.status is Status.OK


def test_flushing_the_l2_slows_a_small_program(target: Target) -> None:
    latency = {}
    for cache in ("hot", "flushed"):
        with Farm(target, FarmConfig(timing=TimingConfig(cache=cache))) as farm:
            (result,) = farm.measure([tiled(256, 128)])
        assert result.timing["cache"] == cache
        latency[cache] = result.latency
    assert latency["flushed"] > latency["hot"]


def test_many_kernels_are_built_side_by_side(target: Target) -> None:
    batch = [tiled(64 + 32 * k, 128) for k in range(24)]
    started = time.monotonic()
    with Farm(target, FarmConfig()) as farm:
        results = farm.measure(batch)
    elapsed = time.monotonic() - started
    assert all(m.status is Status.OK for m in results)
    print(
        f"{len(batch)} kernels in {elapsed:.1f} s, {sum(m.build_secs for m in results):.1f} s built"
    )
    assert elapsed < sum(m.build_secs for m in results)
