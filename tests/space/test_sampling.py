from __future__ import annotations

import json

import pytest

from tensorese.identity import workload_of
from tensorese.measure.candidates import from_schedule
from tensorese.measure.demo import conv2d_module
from tensorese.space.sampling import random_schedules
from tensorese.targets import Target

pytestmark = pytest.mark.tvm


def test_draws_are_distinct_spread_over_sketches_and_repeatable() -> None:
    target = Target.parse("host")
    module = conv2d_module()
    workload = workload_of(module)
    programs = [
        from_schedule(s, workload).program for s in random_schedules(module, target, 6, seed=3)
    ]
    again = [
        from_schedule(s, workload).program for s in random_schedules(module, target, 6, seed=3)
    ]
    assert [p.id for p in programs] == [p.id for p in again]
    assert len({p.id for p in programs}) == 6
    assert len({p.sketch.id for p in programs}) > 1
    other = random_schedules(module, target, 1, seed=4)[0]
    assert from_schedule(other, workload).program.id not in {p.id for p in programs}


def test_a_small_space_ends_instead_of_looping() -> None:
    from space_support import copy_module

    found = random_schedules(copy_module(), Target.parse("host"), 40)
    assert 0 < len(found) < 40


def test_workloads_are_named_by_what_they_compute() -> None:
    workload = workload_of(conv2d_module())
    assert workload.operator == "pad_conv2d"
    assert workload.args[1].shape == (3, 3, 64, 64)
    assert workload.id == workload_of(conv2d_module()).id
    assert json.loads(workload.module)
