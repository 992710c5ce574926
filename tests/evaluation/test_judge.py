from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from synthetic_support import synthetic_measurements
from tensorese.evaluation.judge import judge_scores, judged_index
from tensorese.features.programs import ProgramSet, read_programs
from tensorese.records.store import Store

pytestmark = pytest.mark.null


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> ProgramSet:
    folder: Path = tmp_path_factory.mktemp("judged")
    with Store.open(folder, create=True) as store:
        store.ingest(synthetic_measurements(tasks=3, per_task=70, failing=0.2))
        return read_programs([store])


def test_tasks_with_few_valid_programs_are_not_judged(toy: ProgramSet) -> None:
    sizes = np.bincount(toy.task[judged_index(toy, "toy", range(3))])
    assert sizes.min() < sizes.max() < 70  # some fail
    results = judge_scores(toy, "toy", -toy.latency[:, 0], [2, 0, 1], least=int(sizes.max()))
    assert [r.task for r in results] == [toy.tasks[k] for k in (2, 0, 1) if sizes[k] == sizes.max()]
    assert len(results) < 3


def test_scores_are_of_all_programs(toy: ProgramSet) -> None:
    scores = np.where(toy.task == 1, -toy.latency[:, 0], toy.latency[:, 0])
    worst, best = judge_scores(toy, "toy", scores, [0, 1])
    assert (best.task, best.ratio(1), best.pairwise) == (toy.tasks[1], 1.0, 1.0)
    assert worst.ratio(1) < 1.0 and worst.pairwise == 0.0
    assert best.n == (toy.task[toy.valid(0)] == 1).sum()


def test_thin_results_are_of_the_thinned_programs(toy: ProgramSet) -> None:
    scores = -toy.latency[:, 0]
    thin = judge_scores(toy, "toy", scores, [0, 1, 2], thin=True)
    assert sum(r.n for r in thin) == len(judged_index(toy, "toy", [0, 1, 2], thin=True))
    assert sum(r.n for r in thin) < sum(r.n for r in judge_scores(toy, "toy", scores, [0, 1, 2]))


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
