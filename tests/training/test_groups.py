from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tensorese.features.programs import ProgramSet
from tensorese.training.groups import GroupConfig, Groups
from tensorese.training.stacked import keep_labels

pytestmark = pytest.mark.null

SMALL = GroupConfig(size=8, per_batch=4)


def _groups(toy: ProgramSet, config: GroupConfig = SMALL, failed: bool = False) -> Groups:
    return Groups(toy, range(4), config, seed=1, failed=failed)


def test_a_group_is_of_one_task(toy: ProgramSet) -> None:
    for group in _groups(toy).epoch(0).reshape(-1, 8):
        real = group[group >= 0]
        assert len(set(toy.task[real])) == 1
        assert set(toy.task[real]) <= set(range(4))


def test_an_epoch_sees_every_label_and_no_held_out_task(toy: ProgramSet) -> None:
    seen = np.unique(_groups(toy).epoch(3))
    valid = np.isfinite(toy.latency).any(1) & (toy.task < 4)
    np.testing.assert_array_equal(seen[seen >= 0], np.flatnonzero(valid))
    with_failed = np.unique(_groups(toy, failed=True).epoch(3))
    assert toy.failed[with_failed[with_failed >= 0]].any()


def test_epochs_differ_and_repeat_exactly(toy: ProgramSet) -> None:
    one, two = _groups(toy), _groups(toy)
    np.testing.assert_array_equal(one.epoch(5), two.epoch(5))
    assert (one.epoch(5) != one.epoch(6)).any()
    assert len(one.epoch(0)) == one.per_epoch


def test_mixed_groups_mix_tasks(toy: ProgramSet) -> None:
    groups = _groups(toy, replace(SMALL, by_task=False))
    assert len(set(toy.task[groups.epoch(0)[0, 0]])) > 1
    every = groups.epoch(0).reshape(-1)
    labelled = np.flatnonzero(np.isfinite(toy.latency).any(1) & (toy.task < 4))
    assert groups.records == len(labelled)  # once, whatever the platforms that have a label
    np.testing.assert_array_equal(np.unique(every[every >= 0]), labelled)


def test_a_platform_with_few_labels_is_repeated(toy: ProgramSet) -> None:
    cut = keep_labels(toy, "slow", range(4), 12, seed=0)
    assert np.isfinite(cut.latency[:, 1]).sum() == 12
    assert not cut.failed[:, 1].any()
    assert _groups(cut, replace(SMALL, balance=0.0)).repeats == [1, 1]
    few = _groups(cut, replace(SMALL, balance=1.0)).repeats
    assert few[0] == 1 and few[1] > 5
