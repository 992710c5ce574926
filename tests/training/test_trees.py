"""Trees of speed, and of its logarithm beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tensorese.training.labels import Scale, only, tree_labels
from tensorese.training.physics import PhysicsSet
from tensorese.training.stacked import keep_labels
from tensorese.training.trees import (
    BOTH,
    grow_corrected,
    grow_forest,
    grow_shared,
    labels_of,
    levelled,
    shares_of,
)

pytestmark = pytest.mark.null


def setting(leaves: int = 7) -> dict[str, float]:
    return {"num_leaves": leaves, "min_data_in_leaf": 5, "num_threads": 1, "verbose": -1}


def test_shared_trees_centre_each_platform_by_itself(data: PhysicsSet) -> None:
    """A platform twice as slow says the same of how its programs compare."""
    pytest.importorskip("lightgbm")
    programs = data.programs
    slower = replace(programs, latency=programs.latency * np.array([[1.0, 2.0]]))
    tasks = range(len(programs.tasks))
    one, other = (
        grow_shared(data.features, p, tasks, 10, setting(), ("centred",))["lake-16c"]
        for p in (programs, slower)
    )
    said, again = one.predict(data.features), other.predict(data.features)
    np.testing.assert_allclose(said, again, atol=1e-4)
    assert said.std() > 0.01


def test_a_forest_of_both_says_their_mean(data: PhysicsSet) -> None:
    pytest.importorskip("lightgbm")
    labels, tasks = only(data.programs, "lake-1c"), range(len(data.programs.tasks))
    plain = grow_forest(data.features, labels, tasks, 10, setting())
    both = grow_forest(data.features, labels, tasks, 10, setting(), BOTH)
    count = len(plain.parts["feature"])
    assert len(both.parts["feature"]) == 2 * count
    said, half = plain.predict(data.features), both.predict(data.features)
    assert np.abs(2 * half - said).min() > 0  # the others say something too
    index, octaves = tree_labels(labels, tasks, "octaves")
    rest = (2 * half - said)[index]
    assert np.corrcoef(rest, octaves)[0, 1] > 0.5


def test_another_platforms_trees_are_corrected_where_they_get_wrong(data: PhysicsSet) -> None:
    pytest.importorskip("lightgbm")
    tasks = range(len(data.programs.tasks))
    some, others = [t for t in tasks if t % 3], [t for t in tasks if not t % 3]
    theirs = only(data.programs, "lake-1c")
    mine = only(data.programs, "lake-16c")
    index, share = tree_labels(mine, some)
    unseen, true_share = tree_labels(mine, others)
    wanted = (true_share + tree_labels(mine, others, "octaves")[1]) / 2
    task, n = mine.task[unseen], np.bincount(mine.task[unseen])
    kinds: tuple[Sequence[Scale], ...] = (BOTH, ("share", "centred"))
    for scales in kinds:
        known = grow_forest(data.features, theirs, tasks, 40, setting(), scales)
        level = levelled(share, mine.task[index], known.predict(data.features[index]))
        corrected = grow_corrected(data.features, index, level, 40, setting(), known)
        assert len(corrected.roots) == len(known.roots) + 40
        error = []
        for forest in (known, corrected):
            off = forest.predict(data.features[unseen]) - wanted
            off -= (np.bincount(task, weights=off) / np.maximum(n, 1))[task]
            error.append(np.abs(off).mean())
        assert error[1] < 0.8 * error[0]


def test_centred_labels_of_few_programs_are_those_of_many(data: PhysicsSet) -> None:
    programs, tasks = data.programs, range(len(data.programs.tasks))
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


def test_the_best_of_few_labels_is_guessed_from_the_others(data: PhysicsSet) -> None:
    programs = data.programs
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


def test_shared_trees_tell_platforms_apart_and_learn_from_both(data: PhysicsSet) -> None:
    pytest.importorskip("lightgbm")
    programs, features = data.programs, data.features
    tasks = range(len(programs.tasks))
    shared = grow_shared(features, programs, tasks, 40, setting(15))
    assert set(shared) == set(programs.platforms)
    for platform, forest in shared.items():
        assert forest.parts["feature"].max() < features.shape[1]  # whose it is, is settled
        index, share = tree_labels(only(programs, platform), tasks)
        assert np.corrcoef(forest.predict(features[index]), share)[0, 1] > 0.5
    # A platform without a label is answered by what the others taught.
    few = keep_labels(programs, "lake-16c", tasks, 0, seed=0)
    lent = grow_shared(features, few, tasks, 40, setting(15))["lake-16c"]
    index, share = tree_labels(only(programs, "lake-16c"), tasks)
    assert np.corrcoef(lent.predict(features[index]), share)[0, 1] > 0.3
