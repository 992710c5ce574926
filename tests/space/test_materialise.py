"""Rows as schedules: judged or not, the same program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from space_support import conv2d_module, cuda_target, matmul_module, softmax_module
from tensorese.identity import plain, structure_of, workload_of
from tensorese.language.metaschedule import join_trace
from tensorese.space.materialise import materialise
from tensorese.space.replay import VERIFIERS
from tensorese.space.space import TaskSpace, task_space
from tensorese.targets import Target

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def space() -> TaskSpace:
    return task_space(matmul_module(), cuda_target())


def _rows(space: TaskSpace, n: int) -> list[tuple[int, Any]]:
    return [(0, row) for row in space.sketches[0].sample(n, np.random.default_rng(0))]


def test_the_verdict_changes_nothing(space: TaskSpace) -> None:
    workload, rows = workload_of(space.referee.module), _rows(space, 3)
    unjudged = materialise(space, rows, workload)
    judged = materialise(space, rows, workload, verify=True, threads=1)
    for one, other in zip(unjudged, judged, strict=True):
        assert one.error == other.error == ""
        assert structure_of(one.schedule.mod) == structure_of(other.schedule.mod)
        assert one.recorded() == other.recorded()


def test_only_the_verdict_is_left_out(space: TaskSpace) -> None:
    names = [type(one).__name__ for one in space.referee.postprocessors]
    assert VERIFIERS < set(names)
    assert [type(one).__name__ for one in space.referee.rewriters] == [
        name for name in names if name not in VERIFIERS
    ]


def test_what_tvm_refuses_is_told_when_it_is_asked(space: TaskSpace) -> None:
    """One thread is fewer than the 32 that the sketch demands."""
    sketch = space.sketches[0]
    row = sketch.draw(1, np.random.default_rng(0))[0]
    for slot in sketch.slots:
        if hasattr(slot, "parts"):
            row[slot.column : slot.column + slot.width] = 1
            row[slot.column] = slot.extent
    assert not sketch.legal(row[None])[0]
    workload = workload_of(space.referee.module)
    assert materialise(space, [(0, row)], workload)[0].error == ""
    judged = materialise(space, [(0, row)], workload, verify=True)[0]
    assert judged.error == "a postprocessor refused the schedule"
    assert judged.schedule is None
    assert judged.recorded() == judged.program


def test_a_recorded_program_replays_from_its_trace_alone(space: TaskSpace) -> None:
    made = materialise(space, _rows(space, 1), workload_of(space.referee.module))[0]
    assert made.program.tail == ""
    program, tvm = made.recorded(), space.referee.tvm
    assert program.id == made.program.id
    trace = join_trace(program.sketch.body, program.sketch.slots, program.decisions, program.tail)
    again = tvm.s_tir.Schedule(space.referee.module)
    tvm.s_tir.schedule.Trace.apply_json_to_schedule(trace, again)
    # The platform's numbers (thread bounds) are left out of a sketch, and of the trace with it.
    assert _kernel(again.mod) == _kernel(made.schedule.mod)


def _kernel(module: Any) -> list[str]:
    lines = module.script().splitlines()
    return [line for line in lines if "meta_schedule." not in line]


@pytest.mark.parametrize("maker", [conv2d_module, softmax_module])
def test_blocks_placed_by_hand_are_where_tvm_puts_them(maker: Callable[[], Any]) -> None:
    """Module, trace and decisions are those of a replay that asks TVM about each location."""
    space = task_space(maker(), Target(kind="llvm", cores=2))
    for index, sketch in enumerate(space.sketches):
        for row in sketch.sample(4, np.random.default_rng(0)):
            quick = space.replay(index, row, traced=False)
            asked = space.replay(index, row)
            assert quick.passed
            assert quick.decisions == asked.decisions == tuple(row.tolist())
            assert structure_of(quick.schedule.mod) == structure_of(asked.schedule.mod)
            assert plain(quick.schedule.trace.as_json()) == plain(asked.schedule.trace.as_json())


def test_a_loop_that_is_not_there_is_told() -> None:
    space = task_space(conv2d_module(), Target(kind="llvm", cores=2))
    row = space.sketches[0].sample(1, np.random.default_rng(0))[0]
    row[space.sketches[0].locations[0].column] = 99
    workload = workload_of(space.referee.module)
    made = materialise(space, [(0, row)], workload, traced=False)[0]
    assert made.schedule is None
    assert "must be one of" in made.error
