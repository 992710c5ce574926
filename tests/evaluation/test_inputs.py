from __future__ import annotations

import numpy as np
import pytest
from models_support import trees_model

from tensorese.evaluation.inputs import Inputs, of_tasks
from tensorese.features.programs import ProgramSet

pytestmark = pytest.mark.null


def test_programs_of_some_tasks_are_the_same_programs(toy: ProgramSet) -> None:
    few = of_tasks(toy, [4, 1])
    chosen = np.flatnonzero(np.isin(toy.task, [1, 4]))
    assert few.tasks == (toy.tasks[1], toy.tasks[4]) == tuple(few.workloads)
    assert few.ids == tuple(toy.ids[k] for k in chosen) and 0 < len(few) < len(toy)
    assert [few.tasks[k] for k in few.task] == [toy.tasks[k] for k in toy.task[chosen]]
    np.testing.assert_array_equal(few.latency, toy.latency[chosen])
    model = trees_model(("fast", "slow"), toy.machine)
    scores = Inputs(toy).scores(model, "slow")
    np.testing.assert_array_equal(Inputs(few).scores(model, "slow"), scores[chosen])
    assert len(np.unique(scores[chosen])) > 3
