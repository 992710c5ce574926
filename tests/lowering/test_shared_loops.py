"""Threads that are done take the others' jobs, every iteration is done once, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tensorese.lowering import shared_loops
from tensorese.tvm_env import import_tvm

pytestmark = pytest.mark.tvm

Numbers = npt.NDArray[np.int64]


@pytest.fixture(autouse=True)
def small_loops_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_NUM_THREADS", "4")
    monkeypatch.setattr(shared_loops, "_LEAST", 1)


def host(threads: int) -> Any:
    tvm = import_tvm()
    return tvm.target.Target({"kind": "llvm", "mcpu": "x86-64", "num-cores": threads})


def counting(extent: int, index: str = "int32") -> Any:
    """Adds i to element i, so that a missed or repeated iteration shows."""
    tvm = import_tvm()
    size = tvm.tirx.IntImm(index, extent)
    a = tvm.te.placeholder((size,), "int64", name="a")
    b = tvm.te.compute((size,), lambda i: a[i] + i.astype("int64"), name="b")
    schedule = tvm.s_tir.Schedule(tvm.te.create_prim_func([a, b]))
    schedule.parallel(schedule.get_loops(schedule.get_sblock("b"))[0])
    return schedule.mod


def run(module: Any, extent: int, threads: int, workers: int) -> Numbers:
    tvm = import_tvm()
    library = tvm.tirx.build(module, target=host(threads))
    start = np.arange(extent, dtype=np.int64) * 1000
    given = [tvm.runtime.tensor(start), tvm.runtime.tensor(np.zeros_like(start))]

    def call() -> None:
        tvm.get_global_func("runtime.config_threadpool")(1, workers)
        library["main"](*given)

    in_a_thread(call)
    found: Numbers = given[1].numpy()
    return found


def in_a_thread(call: Callable[[], None]) -> None:
    """TVM keeps a pool for every calling thread: this one's is gone with it."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


@pytest.mark.parametrize("extent", [1, 2, 3, 5, 64, 129, 1000])
@pytest.mark.parametrize(("threads", "workers"), [(2, 1), (2, 2), (3, 2), (2, 4)])
def test_every_iteration_is_done_once(extent: int, threads: int, workers: int) -> None:
    found = run(counting(extent), extent, threads, workers)
    np.testing.assert_array_equal(found, np.arange(extent) * 1001)


def test_loops_over_long_integers_are_left_alone() -> None:
    np.testing.assert_array_equal(run(counting(40, "int64"), 40, 2, 2), np.arange(40) * 1001)


def test_short_loops_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    short, long = (
        import_tvm().tirx.build(counting(extent), target=host(2)).inspect_source("s")
        for extent in (shared_loops._LEAST - 1, shared_loops._LEAST)
    )
    assert "lock" not in short
    assert "lock" in long


def sleepy() -> Any:
    """Eight jobs that say which thread did them; the first half takes 30 ms each."""
    tvm = import_tvm()
    tirx, stmt = tvm.tirx, tvm.tirx.stmt
    who = tirx.decl_buffer((8,), "int64", name="who")
    i = tirx.Var("i", "int32")
    micros = tirx.if_then_else(i < 4, tirx.const(30000, "int32"), tirx.const(0, "int32"))
    body = stmt.SeqStmt(
        [
            stmt.Evaluate(tirx.call_extern("int32", "usleep", micros)),
            stmt.BufferStore(who, tirx.call_extern("int64", "pthread_self"), [i]),
        ]
    )
    zero, eight = tirx.const(0, "int32"), tirx.const(8, "int32")
    loop = stmt.For(i, zero, eight, stmt.ForKind.PARALLEL, body)
    function = tirx.PrimFunc([who], loop).with_attr("global_symbol", "main")
    return tvm.IRModule({"main": function.with_attr("tirx.noalias", True)})


def workers_of(module: Any) -> Numbers:
    tvm = import_tvm()
    library = tvm.tirx.build(module, target=host(2))
    who = tvm.runtime.tensor(np.zeros(8, np.int64))

    def call() -> None:
        tvm.get_global_func("runtime.config_threadpool")(1, 2)
        library["main"](who)

    in_a_thread(call)
    found: Numbers = who.numpy()
    return found


def test_a_thread_that_is_done_helps_the_other() -> None:
    who = workers_of(sleepy())
    assert len(set(who[:4])) == 2


def test_without_it_the_slow_half_is_one_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_loops, "_threads", lambda _: 0)
    who = workers_of(sleepy())
    assert len(set(who[:4])) == 1
    assert len(set(who)) == 2


def test_the_counter_is_inlined() -> None:
    library = import_tvm().tirx.build(counting(64), target=host(2))
    code = library.inspect_source("s")
    assert "lock" in code
    assert "call\ttensorese_take" not in code
