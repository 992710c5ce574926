from __future__ import annotations

import pytest

from tensorese.errors import MeasureError
from tensorese.measure.config import FarmConfig, plan_cores
from tensorese.targets import Target

pytestmark = pytest.mark.null

TWO = Target.from_json('{"kind":"llvm","num-cores":2}')
ONE = Target.from_json('{"kind":"llvm","num-cores":1}')
CUDA = Target.from_json('{"kind":"cuda","arch":"sm_90"}')


def test_a_target_of_all_cores_is_timed_alone() -> None:
    plan = plan_cores(TWO, FarmConfig(), [0, 1])
    assert plan.exclusive
    assert plan.lanes == ((0, 1),)
    assert plan.builders == (0, 1)


def test_spare_cores_build_while_programs_run() -> None:
    plan = plan_cores(TWO, FarmConfig(), [0, 1, 2, 3])
    assert not plan.exclusive
    assert plan.builders == (2, 3)


def test_lanes_never_share_a_core() -> None:
    plan = plan_cores(ONE, FarmConfig(lanes=3), [4, 5, 6, 7])
    assert plan.lanes == ((4,), (5,), (6,))
    assert plan.builders == (7,)


def test_a_gpu_has_one_lane_and_the_rest_builds() -> None:
    plan = plan_cores(CUDA, FarmConfig(), [0, 1, 2])
    assert plan.lanes == ((0,),)
    assert plan.builders == (1, 2)
    assert not plan.exclusive


def test_more_threads_than_cores_are_refused_with_the_remedy() -> None:
    with pytest.raises(MeasureError, match=r"2 x 2 > 2; lower --lanes"):
        plan_cores(TWO, FarmConfig(lanes=2), [0, 1])


@pytest.mark.parametrize(
    "wrong", [{"verify": "some"}, {"build_timeout": 0.0}, {"lanes": 0}, {"run_timeout": -1.0}]
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(MeasureError, match="but got"):
        FarmConfig(**wrong)  # type: ignore[arg-type]
