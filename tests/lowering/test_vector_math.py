"""Polynomials against numpy in double precision, and the cases a polynomial forgets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tensorese.tvm_env import import_tvm

pytestmark = pytest.mark.tvm

Array = npt.NDArray[Any]
_REFERENCE = {
    "exp": np.exp,
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


def compiled(name: str, n: int, dtype: str = "float32", vector: int = 16) -> Any:
    tvm = import_tvm()
    te, tirx = tvm.te, tvm.tirx
    a = te.placeholder((n,), dtype, "a")
    b = te.compute((n,), lambda i: getattr(tirx, name)(a[i]), name="b")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([a, b]))
    (loop,) = schedule.get_loops(schedule.get_sblock("b"))
    if vector > 1:
        schedule.vectorize(schedule.split(loop, [None, vector])[1])
    cpu = tvm.target.codegen.llvm_get_system_cpu()
    library = tvm.build(schedule.mod, target=tvm.target.Target({"kind": "llvm", "mcpu": cpu}))

    def run(x: Array) -> Array:
        given = tvm.runtime.tensor(x.astype(dtype))
        made = tvm.runtime.tensor(np.full(n, 7, dtype))
        library["main"](given, made)
        return np.asarray(made.numpy())

    return run


@pytest.mark.parametrize("name", list(_REFERENCE))
@pytest.mark.parametrize("vector", [1, 16])
def test_errors_are_a_few_units_in_the_last_place(name: str, vector: int) -> None:
    n = 1 << 16
    run = compiled(name, n, vector=vector)
    random = np.random.default_rng(0)
    for width in (1e-3, 1.0, 5.0, 20.0):
        x = random.uniform(-width, width, n).astype(np.float32)
        want = _REFERENCE[name](x.astype(np.float64))
        error = np.abs(run(x) - want) / np.maximum(np.abs(want), 1e-30)
        assert error.max() < 5e-7, width


@pytest.mark.parametrize("name", list(_REFERENCE))
def test_infinities_and_no_numbers(name: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, 1e30, -1e30, 88.7, -86.9] * 2, np.float32)
    got = compiled(name, 16)(x)
    with np.errstate(over="ignore"):
        want = _REFERENCE[name](x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-37)


@pytest.mark.parametrize("name", list(_REFERENCE))
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-14), ("float16", 2e-3)])
def test_other_types_still_work(name: str, dtype: str, tolerance: float) -> None:
    x = np.random.default_rng(0).uniform(-3, 3, 32).astype(dtype)
    got = compiled(name, 32, dtype, vector=1)(x)
    np.testing.assert_allclose(got, _REFERENCE[name](x.astype(np.float64)), rtol=tolerance)


def test_no_call_of_the_library_is_left() -> None:
    tvm = import_tvm()
    te = tvm.te
    a = te.placeholder((64,), "float32", "a")
    b = te.compute((64,), lambda i: tvm.tirx.erf(a[i]) + tvm.tirx.exp(a[i]), name="b")
    module = tvm.IRModule({"main": te.create_prim_func([a, b])})
    text = tvm.build(module, target=tvm.target.Target({"kind": "llvm"})).inspect_source("ll")
    assert "@erff" not in text and "@llvm.exp" not in text
