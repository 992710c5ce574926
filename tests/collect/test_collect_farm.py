"""Plans of cores: lanes never share a core, builders stay off them or stand still."""

from __future__ import annotations

import pytest

from tensorese.collect.farm import COLLECTING, ISOLATED, Layout, arrange, collecting_on, layouts_for
from tensorese.collect.session import planners_for
from tensorese.errors import MeasureError
from tensorese.measure.config import FarmConfig
from tensorese.targets import Target

pytestmark = pytest.mark.null

ONE = Target.from_dict({"kind": "llvm", "num-cores": 1})
ALL = Target.from_dict({"kind": "llvm", "num-cores": 16})
CORES = list(range(3, 16))


def test_lanes_beside_builders_share_no_core() -> None:
    plan = arrange(ONE, FarmConfig(), Layout(lanes=3, stride=2, phases=False), CORES)
    assert plan.lanes == ((3,), (5,), (7,))
    assert plan.builders == tuple(range(9, 16))  # nor the twins of the lanes' cores
    assert not plan.exclusive


def test_in_phases_builders_have_every_core_and_stand_still() -> None:
    plan = arrange(ONE, FarmConfig(), Layout(lanes=2, stride=1, phases=True), CORES)
    assert plan.builders == tuple(CORES)
    assert plan.exclusive
    assert arrange(ONE, FarmConfig(), ISOLATED, CORES).lanes == ((3,),)


def test_a_program_of_all_cores_is_timed_alone() -> None:
    plan = arrange(ALL, FarmConfig(), ISOLATED, list(range(16)))
    assert plan.exclusive and plan.lanes == (tuple(range(16)),) and plan.threads == 16


def test_a_gpu_has_one_lane() -> None:
    plan = arrange(Target(kind="cuda"), FarmConfig(), Layout(lanes=4), CORES)
    assert plan.lanes == ((3,),) and plan.builders == tuple(CORES[1:])


def test_too_many_lanes_are_refused() -> None:
    with pytest.raises(MeasureError, match="8 x 2 > 13; lower --lanes"):
        arrange(ONE, FarmConfig(), Layout(lanes=8, stride=2), CORES)


@pytest.mark.parametrize("cores", [2, 6, 13, 16, 64])
def test_every_layout_tried_fits_and_the_last_is_isolated(cores: int) -> None:
    layouts = layouts_for(1, cores)
    assert layouts[-1] == ISOLATED
    for layout in layouts:
        plan = arrange(ONE, FarmConfig(), layout, list(range(cores)))
        assert plan.builders and len(plan.lanes) == layout.lanes


def test_a_program_of_many_cores_is_timed_shorter_and_in_longer_turns() -> None:
    wide = collecting_on(ALL, verify="none")
    assert wide.timing.budget_ms < COLLECTING.timing.budget_ms
    assert wide.run_batch > COLLECTING.run_batch
    assert wide.verify == "none"
    assert collecting_on(ONE, verify="best") == COLLECTING


def test_kernels_of_a_gpu_have_longer_to_build() -> None:
    assert collecting_on(Target(kind="cuda")).build_timeout > COLLECTING.build_timeout


def test_planners_that_stand_still_half_the_time_are_twice_as_many() -> None:
    shared = arrange(ALL, FarmConfig(), ISOLATED, list(range(16)))
    beside = arrange(ONE, FarmConfig(), Layout(lanes=4, stride=1, phases=False), list(range(16)))
    assert planners_for(shared) == 8
    assert planners_for(beside) == 3
