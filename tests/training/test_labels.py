"""The best of a task, where a platform has few labels of it, and labels on three scales."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tensorese.features.programs import ProgramSet
from tensorese.training.labels import beside_mean, only, task_best, tree_labels
from tensorese.training.stacked import keep_labels
from tensorese.training.trainer import make_labels

pytestmark = pytest.mark.null


def test_with_as_many_labels_everywhere_it_is_the_minimum(lakes: ProgramSet) -> None:
    some = [1, 2]
    best = task_best(lakes, some)
    for task in range(len(lakes.tasks)):
        mine = lakes.latency[lakes.task == task]
        want = np.nanmin(mine, axis=0) if task in some else np.inf
        np.testing.assert_allclose(best[task], want)


def test_networks_learn_few_labels_against_the_best_there_might_be(lakes: ProgramSet) -> None:
    """A platform on which everything takes three times as long, and a tenth of its labels."""
    tasks = range(len(lakes.tasks))
    new, old = lakes.head("lake-16c"), lakes.head("lake-1c")
    latency = lakes.latency.copy()
    latency[:, new] = 3 * latency[:, old]
    few = keep_labels(replace(lakes, latency=latency), "lake-16c", tasks, len(lakes) // 10, seed=0)
    labels = make_labels(few, tasks)
    known = labels.valid[:, new].numpy()
    assert 0 < known.sum() < len(lakes) // 5
    share = labels.label.numpy()
    np.testing.assert_allclose(share[known, new], share[known, old], rtol=1e-4)
    assert share[known, new].max() <= 1.0
    assert (share[~known, new] == 0).all()


def test_labels_on_both_scales_order_programs_alike(lakes: ProgramSet) -> None:
    programs = only(lakes, "lake-1c")
    tasks = range(len(programs.tasks))
    index, share = tree_labels(programs, tasks)
    same, octaves = tree_labels(programs, tasks, "octaves")
    np.testing.assert_array_equal(index, same)
    np.testing.assert_allclose(octaves, np.maximum(1 + np.log2(share) / 6, 0), rtol=1e-6)
    assert share.max() == octaves.max() == 1 and octaves.min() >= 0


def test_centred_labels_compare_a_task_with_its_own_mean(lakes: ProgramSet) -> None:
    mine = only(lakes, "lake-1c")
    index, share = tree_labels(mine, range(len(mine.tasks)))
    _, centred = tree_labels(mine, range(len(mine.tasks)), "centred")
    task = mine.task[index]
    for k in np.unique(task):
        assert centred[task == k].mean() == pytest.approx(0.5, abs=1e-5)
        order = np.argsort(share[task == k])
        assert (np.diff(centred[task == k][order]) >= 0).all()
    octave = np.diff(centred[task == 0])[0] / np.diff(np.log2(share[task == 0]))[0]
    assert octave == pytest.approx(1 / 6, rel=1e-4)
    # Far from the mean they end at 0 and 1, as shares do.
    far = beside_mean(np.array([1.0, 1e-9], dtype=np.float32), np.array([0, 0]))
    np.testing.assert_array_equal(far, [1, 0])
