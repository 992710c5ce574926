"""Build time in the scores: unrolling at first, then what was measured."""

from __future__ import annotations

import numpy as np
import pytest

from tensorese.records.nouns import Measurement, Platform, Program, Sketch, Status, Workload
from tensorese.search.rankers.build_cost import BuildCostRanker
from tuning_support import Ignorant

pytestmark = pytest.mark.null

BODY = '[[["SampleCategorical",[],[[0,16,64,512],[0.25,0.25,0.25,0.25]],["v0"]]],[[0,null]]]'
SKETCH = Sketch(dialect="metaschedule", body=BODY, slots=((0, -1),))
WORKLOAD = Workload(operator="matmul", args=())
ROWS = np.array([[0], [1], [2], [3]])


def built(option: int, secs: float) -> Measurement:
    return Measurement(
        program=Program(workload=WORKLOAD, sketch=SKETCH, decisions=(option,)),
        platform=Platform(name="here"),
        status=Status.OK,
        run_secs=(1e-3,),
        build_secs=secs,
    )


def test_before_anything_was_built_heavy_unrolling_comes_last() -> None:
    scores = BuildCostRanker(Ignorant()).score(WORKLOAD, "here", SKETCH, ROWS)
    assert scores[3] < scores[0] == scores[1] == scores[2]


def test_measured_build_times_replace_the_guess() -> None:
    ranker = Ignorant()
    thrifty = BuildCostRanker(ranker)
    times = {0: 4.0, 1: 0.1, 2: 0.1, 3: 0.1}
    thrifty.update([built(option, times[option]) for option in (0, 1, 2, 3) * 6])
    scores = thrifty.score(WORKLOAD, "here", SKETCH, ROWS)
    assert scores[0] < min(scores[1:]) - 0.3
    assert abs(float(scores[3] - scores[1])) < 0.3
    assert len(ranker.told) == 24


def test_builds_without_a_time_teach_nothing() -> None:
    thrifty = BuildCostRanker(Ignorant())
    thrifty.update([built(0, float("nan"))] * 20)
    assert thrifty.score(WORKLOAD, "here", SKETCH, ROWS)[3] < 0
