"""Trees of speed, and of its logarithm beside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cpu_records_support import cpu_measurements
from tensorese.evaluation.trees import tree_labels
from tensorese.models.programs import read_programs
from tensorese.records.store import Store
from tensorese.training.grow import grow_forest
from tensorese.training.small import only, small_set

pytestmark = pytest.mark.null


def test_labels_on_both_scales_order_programs_alike(tmp_path: Path) -> None:
    with Store.open(tmp_path, create=True) as store:
        store.ingest(cpu_measurements(("lake-1c",)))
        programs = read_programs([store])
    tasks = range(len(programs.tasks))
    index, share = tree_labels(programs, tasks)
    same, octaves = tree_labels(programs, tasks, octaves=True)
    np.testing.assert_array_equal(index, same)
    np.testing.assert_allclose(octaves, np.maximum(1 + np.log2(share) / 6, 0), rtol=1e-6)
    assert share.max() == octaves.max() == 1 and octaves.min() >= 0


def test_a_forest_of_both_says_their_mean(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    with Store.open(tmp_path, create=True) as store:
        store.ingest(cpu_measurements(("lake-1c",)))
        given = small_set(read_programs([store]))
    labels, tasks = only(given.programs, "lake-1c"), range(len(given.programs.tasks))
    setting = {"num_leaves": 7, "min_data_in_leaf": 5, "num_threads": 1, "verbose": -1}
    plain = grow_forest(given.features, labels, tasks, 10, setting)
    both = grow_forest(given.features, labels, tasks, 10, setting, both=True)
    count = len(plain.parts["feature"])
    assert len(both.parts["feature"]) == 2 * count
    said, half = plain.predict(given.features), both.predict(given.features)
    assert np.abs(2 * half - said).min() > 0  # the others say something too
    index, octaves = tree_labels(labels, tasks, octaves=True)
    rest = (2 * half - said)[index]
    assert np.corrcoef(rest, octaves)[0, 1] > 0.5
