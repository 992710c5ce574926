"""The best of a task, where a platform has few labels of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cpu_records_support import cpu_measurements
from tensorese.features.programs import ProgramSet, read_programs
from tensorese.records.store import Store
from tensorese.training.labels import task_best
from tensorese.training.stacked import keep_labels
from tensorese.training.trainer import make_labels

pytestmark = pytest.mark.null


@pytest.fixture
def programs(tmp_path: Path) -> ProgramSet:
    with Store.open(tmp_path, create=True) as store:
        store.ingest(cpu_measurements(("lake-1c", "lake-16c")))
        return read_programs([store])


def test_with_as_many_labels_everywhere_it_is_the_minimum(programs: ProgramSet) -> None:
    some = [1, 2]
    best = task_best(programs, some)
    for task in range(len(programs.tasks)):
        mine = programs.latency[programs.task == task]
        want = np.nanmin(mine, axis=0) if task in some else np.inf
        np.testing.assert_allclose(best[task], want)


def test_networks_learn_few_labels_against_the_best_there_might_be(programs: ProgramSet) -> None:
    """A platform on which everything takes three times as long, and a tenth of its labels."""
    tasks = range(len(programs.tasks))
    new, old = programs.head("lake-16c"), programs.head("lake-1c")
    latency = programs.latency.copy()
    latency[:, new] = 3 * latency[:, old]
    few = keep_labels(
        replace(programs, latency=latency), "lake-16c", tasks, len(programs) // 10, seed=0
    )
    labels = make_labels(few, tasks)
    known = labels.valid[:, new].numpy()
    assert 0 < known.sum() < len(programs) // 5
    share = labels.label.numpy()
    np.testing.assert_allclose(share[known, new], share[known, old], rtol=1e-4)
    assert share[known, new].max() <= 1.0
    assert (share[~known, new] == 0).all()
