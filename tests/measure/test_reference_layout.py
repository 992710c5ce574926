"""Built candidates whose weights changed layout agree with the referee on re-laid inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reference_support import TARGET, module_of, run_in_tvm
from tensorese.measure.reference import (
    Unsupported,
    compare,
    input_specs,
    reduction_length,
    reference_case,
    relayout_inputs,
    tolerance,
)
from tensorese.tvm_env import import_tvm, set_threads

pytestmark = pytest.mark.tvm


def free_layout(tensors: Any, *weights: int) -> Any:
    """A module whose parameters at `weights` RewriteLayout may change (it reads this attribute)."""
    mod = module_of(tensors)
    mod["main"] = mod["main"].with_attr("layout_free_buffers", list(weights))
    return mod


def candidates(mod: Any, count: int) -> list[Any]:
    """Scheduled modules from random decisions, after every postprocessor, before stripping."""
    tvm = import_tvm()
    set_threads(2)
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.schedule import Trace

    context = ms.TuneContext(
        mod=mod,
        target=tvm.target.Target(TARGET),
        space_generator="post-order-apply",
        num_threads=2,
        rand_state=1,
    )
    sketches, found = context.generate_design_space(), []
    for seed in range(3 * count):
        schedule = tvm.s_tir.Schedule(mod, seed=seed + 1)
        insts = sketches[seed % len(sketches)].trace.insts
        Trace(insts, {}).apply_to_schedule(schedule, remove_postproc=True)
        schedule.enter_postproc()
        if all(post.apply(schedule) for post in context.space_generator.postprocs):
            found.append(schedule.mod)
        if len(found) == count:
            break
    return found


def stripped(scheduled: Any) -> Any:
    tvm = import_tvm()
    # What MetaSchedule's default builder does before it compiles.
    return tvm.s_tir.transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(scheduled)


def conv2d() -> Any:
    import_tvm()
    from tvm.s_tir.meta_schedule.testing import te_workload

    return te_workload.conv2d_nhwc(1, 14, 14, 16, 32, 3, 1, 1)


def matmul() -> Any:
    import_tvm()
    from tvm.s_tir.meta_schedule.testing import te_workload

    return te_workload.matmul(64, 48, 32)


@pytest.mark.parametrize("operator", [conv2d, matmul])
def test_thirty_built_candidates_agree(operator: Any) -> None:
    mod = free_layout(operator(), 1)
    inputs, want = reference_case(mod, 3)
    limits = tolerance("float32", reduction_length(mod))
    layouts = set()
    found = candidates(mod, 30)
    assert len(found) == 30
    for scheduled in found:
        relaid = relayout_inputs(scheduled, inputs)
        built = stripped(scheduled)
        assert [a.shape for a in relaid] == [spec.shape for spec in input_specs(built)]
        verdict = compare(run_in_tvm(built, relaid, want)[0], want[0], *limits)
        assert verdict.passed, verdict
        layouts.add(relaid[1].shape)
    # The test can fail: the same weights merely reshaped are wrong.
    naive = [inputs[0], inputs[1].reshape(relaid[1].shape)]
    assert not compare(run_in_tvm(built, naive, want)[0], want[0], *limits).passed
    assert len(layouts) > 10


def test_a_module_without_layout_blocks_keeps_its_inputs() -> None:
    mod = module_of(conv2d())
    inputs, _ = reference_case(mod, 3)
    scheduled = candidates(mod, 1)[0]
    relaid = relayout_inputs(scheduled, inputs)
    assert all(a is b for a, b in zip(relaid, inputs, strict=True))


def test_topi_dense_marks_its_own_weight() -> None:
    import_tvm()
    from tvm import te, topi

    a, b = te.placeholder((16, 32), name="a"), te.placeholder((24, 32), name="b")
    mod = module_of([a, b, topi.nn.dense(a, b)])
    inputs, want = reference_case(mod, 3)
    for scheduled in candidates(mod, 4):
        relaid = relayout_inputs(scheduled, inputs)
        assert relaid[1].shape != inputs[1].shape
        got = run_in_tvm(stripped(scheduled), relaid, want)[0]
        assert compare(got, want[0], *tolerance("float32", 32)).passed


def test_refuses_inputs_of_another_shape() -> None:
    scheduled = candidates(free_layout(matmul(), 1), 1)[0]
    with pytest.raises(Unsupported, match="inputs unlike"):
        relayout_inputs(scheduled, [np.zeros((2, 2), np.float32)] * 2)
