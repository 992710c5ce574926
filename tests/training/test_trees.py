"""Trees of speed, and of its logarithm beside them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tensorese.evaluation.trees import beside_mean, tree_labels

from cpu_records_support import cpu_measurements
from tensorese.features.programs import read_programs
from tensorese.records.store import Store
from tensorese.training.physics import SmallSet, only, small_set
from tensorese.training.stacked import keep_labels
from tensorese.training.trees import (
    BOTH,
    grow_forest,
    grow_shared,
    grow_taught,
    labels_of,
    levelled,
    shares_of,
)

pytestmark = pytest.mark.null


@pytest.fixture
def given(tmp_path: Path) -> SmallSet:
    """Two platforms."""
    with Store.open(tmp_path, create=True) as store:
        store.ingest(cpu_measurements(("lake-1c", "lake-16c")))
        return small_set(read_programs([store]))


def test_labels_on_both_scales_order_programs_alike(tmp_path: Path) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.ingest(cpu_measurements(("lake-1c",)))
        programs = read_programs([store])
    tasks = range(len(programs.tasks))
    index, share = tree_labels(programs, tasks)
    same, octaves = tree_labels(programs, tasks, "octaves")
    np.testing.assert_array_equal(index, same)
    np.testing.assert_allclose(octaves, np.maximum(1 + np.log2(share) / 6, 0), rtol=1e-6)
    assert share.max() == octaves.max() == 1 and octaves.min() >= 0


def test_centred_labels_compare_a_task_with_its_own_mean(given: SmallSet) -> None:
    mine = only(given.programs, "lake-1c")
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


def test_shared_trees_centre_each_platform_by_itself(given: SmallSet) -> None:
    """A platform twice as slow says the same of how its programs compare."""
    pytest.importorskip("lightgbm")
    setting = {"num_leaves": 7, "min_data_in_leaf": 5, "num_threads": 1, "verbose": -1}
    programs = given.programs
    slower = replace(programs, latency=programs.latency * np.array([[1.0, 2.0]]))
    tasks = range(len(programs.tasks))
    one, other = (
        grow_shared(given.features, p, tasks, 10, setting, ("centred",))["lake-16c"]
        for p in (programs, slower)
    )
    said, again = one.predict(given.features), other.predict(given.features)
    np.testing.assert_allclose(said, again, atol=1e-4)
    assert said.std() > 0.01


def test_a_forest_of_both_says_their_mean(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    with Store.open(tmp_path, create=True) as store:
        store.ingest(cpu_measurements(("lake-1c",)))
        given = small_set(read_programs([store]))
    labels, tasks = only(given.programs, "lake-1c"), range(len(given.programs.tasks))
    setting = {"num_leaves": 7, "min_data_in_leaf": 5, "num_threads": 1, "verbose": -1}
    plain = grow_forest(given.features, labels, tasks, 10, setting)
    both = grow_forest(given.features, labels, tasks, 10, setting, BOTH)
    count = len(plain.parts["feature"])
    assert len(both.parts["feature"]) == 2 * count
    said, half = plain.predict(given.features), both.predict(given.features)
    assert np.abs(2 * half - said).min() > 0  # the others say something too
    index, octaves = tree_labels(labels, tasks, "octaves")
    rest = (2 * half - said)[index]
    assert np.corrcoef(rest, octaves)[0, 1] > 0.5


def test_another_platforms_trees_are_taught_what_they_get_wrong(given: SmallSet) -> None:
    pytest.importorskip("lightgbm")
    tasks = range(len(given.programs.tasks))
    some, others = [t for t in tasks if t % 3], [t for t in tasks if not t % 3]
    setting = {"num_leaves": 7, "min_data_in_leaf": 5, "num_threads": 1, "verbose": -1}
    theirs = only(given.programs, "lake-1c")
    mine = only(given.programs, "lake-16c")
    index, share = tree_labels(mine, some)
    unseen, told = tree_labels(mine, others)
    wanted = (told + tree_labels(mine, others, "octaves")[1]) / 2
    task, n = mine.task[unseen], np.bincount(mine.task[unseen])
    for scales in (BOTH, ("share", "centred")):
        known = grow_forest(given.features, theirs, tasks, 40, setting, scales)
        level = levelled(share, mine.task[index], known.predict(given.features[index]))
        taught = grow_taught(given.features, index, level, 40, setting, known)
        assert len(taught.roots) == len(known.roots) + 40
        error = []
        for forest in (known, taught):
            off = forest.predict(given.features[unseen]) - wanted
            off -= (np.bincount(task, weights=off) / np.maximum(n, 1))[task]
            error.append(np.abs(off).mean())
        assert error[1] < 0.8 * error[0]


def test_centred_labels_of_few_programs_are_those_of_many(given: SmallSet) -> None:
    programs, tasks = given.programs, range(len(given.programs.tasks))
    k, other = programs.head("lake-16c"), programs.head("lake-1c")
    latency = programs.latency.copy()
    latency[:, k] = 3 * latency[:, other]  # everything takes three times as long there
    all_of = replace(programs, latency=latency)
    few = keep_labels(all_of, "lake-16c", tasks, 2 * len(tasks), seed=0)
    whole, part = (np.full(latency.shape, np.nan) for _ in range(2))
    for labels, into in ((all_of, whole), (few, part)):
        row, column, (found,) = labels_of(labels, tasks, ("centred",))
        into[row, column] = found
    kept = np.isfinite(part[:, k])
    assert 0 < kept.sum() < np.isfinite(whole[:, k]).sum() / 2
    np.testing.assert_allclose(part[kept, k], whole[kept, k], atol=0.01)
    # Beside those few alone they would say next to nothing.
    alone = keep_labels(only(all_of, "lake-16c"), "lake-16c", tasks, 2 * len(tasks), seed=0)
    index, lone = tree_labels(alone, tasks, "centred")
    assert np.abs(lone - whole[index, k]).mean() > 0.02


def test_the_best_of_few_labels_is_guessed_from_the_others(tmp_path: Path) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.ingest(cpu_measurements(("lake-1c", "lake-16c")))
        programs = read_programs([store])
    tasks = range(len(programs.tasks))
    row, column, share = shares_of(programs, tasks)
    for k, platform in enumerate(programs.platforms):
        index, alone = tree_labels(only(programs, platform), tasks)
        mine = column == k
        np.testing.assert_array_equal(row[mine], index)
        np.testing.assert_allclose(share[mine], alone)
    # A platform on which everything takes three times as long, and few labels of it.
    k, other = programs.head("lake-16c"), programs.head("lake-1c")
    latency = programs.latency.copy()
    latency[:, k] = 3 * latency[:, other]
    few = keep_labels(replace(programs, latency=latency), "lake-16c", tasks, 4 * len(tasks), seed=0)
    row, column, guessed = shares_of(few, tasks)
    true = np.full(latency.shape, np.nan)
    true[row, column] = guessed
    mine = row[column == k]
    np.testing.assert_allclose(guessed[column == k], true[mine, other], rtol=1e-5)
    assert tree_labels(only(few, "lake-16c"), tasks)[1].mean() > 1.05 * true[mine, other].mean()


def test_shared_trees_tell_platforms_apart_and_learn_from_both(given: SmallSet) -> None:
    pytest.importorskip("lightgbm")
    programs, features = given.programs, given.features
    tasks = range(len(programs.tasks))
    setting = {"num_leaves": 15, "min_data_in_leaf": 5, "num_threads": 1, "verbose": -1}
    shared = grow_shared(features, programs, tasks, 40, setting)
    assert set(shared) == set(programs.platforms)
    for platform, forest in shared.items():
        assert forest.parts["feature"].max() < features.shape[1]  # whose it is, is settled
        index, share = tree_labels(only(programs, platform), tasks)
        assert np.corrcoef(forest.predict(features[index]), share)[0, 1] > 0.5
    # A platform without a label is answered by what the others taught.
    few = keep_labels(programs, "lake-16c", tasks, 0, seed=0)
    taught = grow_shared(features, few, tasks, 40, setting)["lake-16c"]
    index, share = tree_labels(only(programs, "lake-16c"), tasks)
    assert np.corrcoef(taught.predict(features[index]), share)[0, 1] > 0.3
