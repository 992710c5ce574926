from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from synthetic_support import synthetic_measurements
from tensorese.evaluation.judge import judge_programs, judged_index
from tensorese.features.programs import ProgramSet, read_programs
from tensorese.records.store import Store

pytestmark = pytest.mark.null


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> ProgramSet:
    folder: Path = tmp_path_factory.mktemp("judged")
    with Store.open(folder, create=True) as store:
        store.ingest(synthetic_measurements(tasks=3, per_task=70, failing=0.2))
        return read_programs([store])


def test_tasks_under_64_records_are_reported_apart(toy: ProgramSet) -> None:
    index = judged_index(toy, "toy", range(3))
    assert np.isfinite(toy.latency[index, 0]).all()
    verdict = judge_programs(toy, "toy", index, -toy.latency[index, 0])
    sizes = np.bincount(toy.task[index])
    assert len(verdict.small) == (sizes < 64).sum() > 0
    assert len(verdict.tasks) + len(verdict.small) == 3


def test_thinning_drops_near_best_but_never_the_best(toy: ProgramSet) -> None:
    full = judged_index(toy, "toy", [0, 1])
    thin = judged_index(toy, "toy", [0, 1], thin=True)
    assert set(thin) < set(full)
    for task in (0, 1):
        latency = toy.latency[full[toy.task[full] == task], 0]
        kept = toy.latency[thin[toy.task[thin] == task], 0]
        assert kept.min() == latency.min()
        slow = latency.min() / latency < 0.9
        assert (latency.min() / kept < 0.9).sum() == slow.sum()


def test_only_the_asked_tasks(toy: ProgramSet) -> None:
    assert set(toy.task[judged_index(toy, "toy", [2])]) == {2}
