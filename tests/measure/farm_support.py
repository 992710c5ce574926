"""Real candidates, good and bad, for the measurers' tests. Nothing here is mocked."""

from __future__ import annotations

from typing import Any

from tensorese.identity import workload_of
from tensorese.measure.base import Candidate
from tensorese.measure.candidates import from_module, from_schedule
from tensorese.records.nouns import Workload
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm

tvm = import_tvm()


def host_target() -> Target:
    return Target.parse("host")


def matmul(n: int = 64, m: int = 64, k: int = 64) -> Any:
    a, b = tvm.te.placeholder((n, k), name="a"), tvm.te.placeholder((k, m), name="b")
    r = tvm.te.reduce_axis((0, k), name="r")
    c = tvm.te.compute((n, m), lambda i, j: tvm.te.sum(a[i, r] * b[r, j], axis=r), name="c")
    return tvm.IRModule({"main": tvm.te.create_prim_func([a, b, c])})


def elementwise(body: Any, n: int = 64) -> Any:
    """y[i] = x[i] + body(), with `body` an int32 expression: the place where faults go."""
    x = tvm.te.placeholder((n,), name="x")
    y = tvm.te.compute((n,), lambda i: x[i] + tvm.tirx.Cast("float32", body(i)), name="y")
    return tvm.IRModule({"main": tvm.te.create_prim_func([x, y])})


def extern(name: str, *args: Any) -> Any:
    return tvm.tirx.call_extern("int32", name, *args)


def good(n: int = 64, workload: Workload | None = None) -> list[Candidate]:
    """Tilings of one matmul by different factors: distinct programs of one workload."""
    module = matmul(n)
    workload = workload or workload_of(module)
    made = []
    for factor in (1, 2, 4, 8, 16, 32):
        schedule = tvm.s_tir.Schedule(module)
        block = schedule.get_sblock("c")
        i, j, r = schedule.get_loops(block)
        outer, inner = schedule.split(i, [None, factor])
        schedule.reorder(outer, r, inner, j)
        schedule.parallel(outer)
        schedule.vectorize(j)
        made.append(from_schedule(schedule, workload, origin="random"))
    return made


def segfaults() -> Candidate:
    return from_module(elementwise(lambda i: extern("raise", 11)), origin="random")


def aborts() -> Candidate:
    return from_module(elementwise(lambda i: extern("raise", 6)), origin="random")


def hangs() -> Candidate:
    return from_module(elementwise(lambda i: extern("pause")), origin="random")


def eats_memory() -> Candidate:
    """Allocates and touches 64 MiB per element, never freeing."""

    size = tvm.tirx.const(1 << 26, "int64")

    def body(i: Any) -> Any:
        block = tvm.tirx.call_extern("int64", "malloc", size)
        return tvm.tirx.call_extern("int64", "memset", block, 1, size)

    return from_module(elementwise(body, n=4096), origin="random")


def wrong() -> Candidate:
    """Claims to be the 64^3 matmul and leaves the last reduction step out."""
    n, k = 64, 64
    a, b = tvm.te.placeholder((n, k), name="a"), tvm.te.placeholder((k, n), name="b")
    r = tvm.te.reduce_axis((0, k - 1), name="r")
    c = tvm.te.compute((n, n), lambda i, j: tvm.te.sum(a[i, r] * b[r, j], axis=r), name="c")
    module = tvm.IRModule({"main": tvm.te.create_prim_func([a, b, c])})
    return from_module(module, workload_of(matmul()), origin="random")


def does_not_build() -> Candidate:
    """A GPU thread axis in a CPU program."""
    module = matmul(32)
    schedule = tvm.s_tir.Schedule(module)
    schedule.bind(schedule.get_loops(schedule.get_sblock("c"))[0], "threadIdx.x")
    return from_schedule(schedule, workload_of(module), origin="random")


def crawls_in_llvm() -> Candidate:
    """Unrolled far beyond reason: minutes of compiling."""
    module = elementwise(lambda i: i, n=1 << 17)
    schedule = tvm.s_tir.Schedule(module)
    schedule.unroll(schedule.get_loops(schedule.get_sblock("y"))[0])
    return from_schedule(schedule, workload_of(module), origin="random")
