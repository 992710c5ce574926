"""The schedule of kernels nobody tuned: same numbers, more cores, vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorese.deploy.plain import plain_schedule
from tensorese.tvm_env import import_tvm

pytestmark = pytest.mark.tvm


def built(module: Any, arrays: list[Any], shape: tuple[int, ...]) -> Any:
    tvm = import_tvm()
    library = tvm.build(module, target=tvm.target.Target({"kind": "llvm", "num-cores": 2}))
    out = tvm.runtime.tensor(np.full(shape, 77, np.float32))
    library["main"](*[tvm.runtime.tensor(array) for array in arrays], out)
    return out.numpy()


def matmul_relu(m: int, n: int, k: int) -> Any:
    tvm = import_tvm()
    te = tvm.te
    a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    d = te.compute((m, n), lambda i, j: tvm.tirx.max(c[i, j], 0.0), name="d")
    return tvm.IRModule({"main": te.create_prim_func([a, b, d])})


@pytest.mark.parametrize(("m", "n", "k"), [(32, 64, 48), (7, 30, 5), (1, 13, 9), (5, 1, 300)])
def test_a_matrix_product_keeps_its_numbers(m: int, n: int, k: int) -> None:
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
    got = built(plain_schedule(matmul_relu(m, n, k)), [a, b], (m, n))
    np.testing.assert_allclose(got, np.maximum(a @ b, 0), rtol=1e-4, atol=1e-4)


def test_cores_and_vectors_are_used() -> None:
    text = plain_schedule(matmul_relu(32, 64, 48)).script()
    assert "T.parallel" in text and "T.vectorized" in text
    small = plain_schedule(matmul_relu(4, 8, 4)).script()
    assert "T.parallel" not in small and "T.vectorized" in small


def test_what_does_not_fit_stays_as_it_is() -> None:
    """A sum over everything has no loop to share among cores."""
    tvm = import_tvm()
    te = tvm.te
    a = te.placeholder((64,), name="a")
    r = te.reduce_axis((0, 64), name="r")
    total = te.compute((), lambda: te.sum(a[r], axis=r), name="total")
    module = tvm.IRModule({"main": te.create_prim_func([a, total])})
    x = np.arange(64, dtype=np.float32)
    assert built(plain_schedule(module), [x], ()) == x.sum()


def test_truth_values_are_negated_one_by_one() -> None:
    """TVM's code for a vector of them makes -2 of 1: every row would count as seen."""
    tvm = import_tvm()
    te = tvm.te
    a = te.placeholder((4, 32), name="a")
    same = te.compute((4, 32), lambda i, j: a[i, j] == tvm.tirx.const(0.0, "float32"), name="same")
    other = te.compute((4, 32), lambda i, j: tvm.tirx.Not(same[i, j]), name="other")
    number = te.compute((4, 32), lambda i, j: other[i, j].astype("float32"), name="number")
    module = tvm.IRModule({"main": te.create_prim_func([a, number])})
    x = np.random.default_rng(0).integers(0, 2, (4, 32)).astype(np.float32)
    assert np.array_equal(built(plain_schedule(module), [x], (4, 32)), x)
