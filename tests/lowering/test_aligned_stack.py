"""Kernels that keep vectors on the stack keep them on cache lines, and compute the same."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tensorese.tvm_env import import_tvm

pytestmark = pytest.mark.tvm

_N = 64


def crowded(*, parallel: bool) -> Any:
    """A product whose accumulators, 64 vectors of 16, are more than there are registers."""
    tvm = import_tvm()
    te = tvm.te
    a, b = (te.placeholder((_N, _N), name=name) for name in "ab")
    r = te.reduce_axis((0, _N), name="r")
    c = te.compute((_N, _N), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([a, b, c]))
    block = schedule.get_sblock("c")
    i, j, k = schedule.get_loops(block)
    outer, inner = schedule.split(i, [None, 16])
    left, lanes = schedule.split(j, [None, 16])
    schedule.reorder(outer, k, inner, left, lanes)
    schedule.vectorize(lanes)
    for loop in (inner, left):
        schedule.unroll(loop)
    if parallel:
        schedule.parallel(outer)
    schedule.decompose_reduction(block, k)
    return schedule.mod


def built(module: Any) -> Any:
    tvm = import_tvm()
    target = tvm.target.Target({"kind": "llvm", "mcpu": "skylake-avx512"})
    return tvm.build(module, target=target)


@pytest.mark.parametrize("parallel", [True, False])
def test_vectors_on_the_stack_are_aligned(parallel: bool) -> None:
    code = built(crowded(parallel=parallel)).inspect_source("s")
    kept = re.findall(r"(vmov[au]ps)\s+%zmm\d+, -?\d*\(%rsp\)", code)
    assert kept, "the program was meant to have too few registers"
    assert set(kept) == {"vmovaps"}
    assert re.search(r"andq\s+\$-64, %rsp", code)


def test_without_it_they_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorese.lowering.aligned_stack import Frames

    monkeypatch.setattr(Frames, "of", lambda self, body: body)
    code = built(crowded(parallel=True)).inspect_source("s")
    assert "vmovups" in "".join(re.findall(r"vmov[au]ps\s+%zmm\d+, -?\d*\(%rsp\)", code))


@pytest.mark.parametrize("parallel", [True, False])
def test_it_computes_the_same(parallel: bool) -> None:
    tvm = import_tvm()
    cpu = tvm.target.codegen.llvm_get_system_cpu()
    target = tvm.target.Target({"kind": "llvm", "mcpu": cpu})
    library = tvm.build(crowded(parallel=parallel), target=target)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((_N, _N), np.float32) for _ in "ab")
    given = [tvm.runtime.tensor(x) for x in (a, b, np.zeros((_N, _N), np.float32))]
    library["main"](*given)
    np.testing.assert_allclose(given[2].numpy(), a @ b, rtol=1e-4, atol=1e-4)
