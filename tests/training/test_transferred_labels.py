"""Labels of other platforms, transferred to one that has few."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tensorese.features.programs import ProgramSet
from tensorese.training import transferred_labels
from tensorese.training.physics import PhysicsSet
from tensorese.training.stacked import keep_labels
from tensorese.training.transferred_labels import transferred
from training_support import NEW, OLD

pytestmark = pytest.mark.null
pytest.importorskip("lightgbm")

QUICK = {"min_data_in_leaf": 5, "feature_fraction": 1.0, "learning_rate": 0.3, "num_threads": 1}


def slower_where_large(data: PhysicsSet) -> ProgramSet:
    """Times of the new platform are the old one's, eight times longer where a feature is large,
    and five times longer everywhere."""
    programs, features = data.programs, data.features
    column = int(np.argmax(features.std(0)))
    large = features[:, column] > np.median(features[:, column])
    latency = programs.latency.copy()
    latency[:, programs.head(NEW)] = 5 * latency[:, programs.head(OLD)] * np.where(large, 8.0, 1.0)
    return replace(programs, latency=latency)


def centred(programs: ProgramSet) -> np.ndarray:
    octaves = np.log2(programs.latency[:, programs.head(NEW)])
    count = np.bincount(programs.task)
    return np.asarray(octaves - (np.bincount(programs.task, octaves) / count)[programs.task])


def test_a_third_of_the_labels_tells_the_others(data: PhysicsSet) -> None:
    truth = slower_where_large(data)
    tasks = range(len(truth.tasks))
    few = keep_labels(truth, NEW, tasks, len(truth) // 3, seed=0)
    filled = transferred(data.features, few, NEW, tasks, more=QUICK)
    assert np.isfinite(filled.latency).all()
    lacking = ~np.isfinite(few.latency[:, few.head(NEW)])
    off = np.abs(centred(filled) - centred(truth))[lacking]
    blind = np.abs(centred(replace(truth, latency=truth.latency[:, ::-1])) - centred(truth))
    assert off.mean() < 0.2 * blind[lacking].mean()


def test_labels_of_its_own_stay_as_they_are_beside_each_other(data: PhysicsSet) -> None:
    truth = slower_where_large(data)
    tasks = range(len(truth.tasks))
    few = keep_labels(truth, NEW, tasks, len(truth) // 2, seed=1)
    filled = transferred(data.features, few, NEW, tasks, more=QUICK)
    head = truth.head(NEW)
    own = np.isfinite(few.latency[:, head])
    ratio = np.log2(filled.latency[own, head] / few.latency[own, head])
    for task in np.unique(truth.task[own]):
        assert np.ptp(ratio[truth.task[own] == task]) < 1e-6


def test_other_tasks_and_platforms_are_left_alone(data: PhysicsSet) -> None:
    truth = slower_where_large(data)
    some = range(len(truth.tasks) - 1)
    few = keep_labels(truth, NEW, some, len(truth) // 2, seed=2)
    filled = transferred(data.features, few, NEW, some, more=QUICK)
    last = truth.task == len(truth.tasks) - 1
    np.testing.assert_array_equal(filled.latency[last], few.latency[last])
    old = truth.head(OLD)
    np.testing.assert_array_equal(filled.latency[:, old], few.latency[:, old])


def test_a_program_that_failed_there_gets_no_label(data: PhysicsSet) -> None:
    truth = slower_where_large(data)
    tasks, head = range(len(truth.tasks)), truth.head(NEW)
    few = keep_labels(truth, NEW, tasks, len(truth) // 2, seed=3)
    lacking = np.flatnonzero(~np.isfinite(few.latency[:, head]))
    failed = few.failed.copy()
    failed[lacking[::2], head] = True
    filled = transferred(data.features, replace(few, failed=failed), NEW, tasks, more=QUICK)
    assert not np.isfinite(filled.latency[lacking[::2], head]).any()
    assert np.isfinite(filled.latency[lacking[1::2], head]).all()


def test_nothing_in_common_tells_nothing(data: PhysicsSet) -> None:
    latency = data.programs.latency.copy()
    half = np.arange(len(latency)) % 2 == 0
    latency[half, 0] = np.nan
    latency[~half, 1] = np.nan
    apart = replace(data.programs, latency=latency)
    tasks = range(len(apart.tasks))
    np.testing.assert_array_equal(
        transferred(data.features, apart, NEW, tasks, more=QUICK).latency, latency
    )


def test_a_platform_with_few_labels_is_filled_up(
    data: PhysicsSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = slower_where_large(data)
    tasks = range(len(truth.tasks))
    few = keep_labels(truth, NEW, tasks, len(truth) // 5, seed=0)
    head, old = truth.head(NEW), truth.head(OLD)
    monkeypatch.setattr(transferred_labels, "ENOUGH", len(truth) // 5)
    filled, said = transferred_labels.fill_few(data.features, few, tasks)
    assert said.startswith(f"{NEW} has few labels and learns {len(truth) - len(truth) // 5} of")
    assert np.isfinite(filled.latency[:, head]).all()
    np.testing.assert_array_equal(filled.latency[:, old], few.latency[:, old])
    # Half as many labels are not few, and too few tell nothing.
    half = keep_labels(truth, NEW, tasks, len(truth) // 2, seed=0)
    assert transferred_labels.fill_few(data.features, half, tasks)[1] == ""
    monkeypatch.setattr(transferred_labels, "ENOUGH", len(truth) // 5 + 1)
    assert transferred_labels.fill_few(data.features, few, tasks)[1] == ""
