"""Features by name: what a row says, and that sketches of a task say it in the same words."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from measurements_support import matmul_measurement
from search_support import toy_sketch
from tensorese.features.decisions import emphasis, named_features, table

pytestmark = pytest.mark.null

ROW = np.array([[2, 1, 8, 4, 1, 3, 1, 16, 8, 4, 2, -1]])


def test_tiles_choices_and_locations_are_read() -> None:
    named = named_features(toy_sketch((4, 4, 2), located=True, name="a"), ROW)
    told = {name: float(column[0]) for name, column in named.items()}
    assert told["tile 0.3"] == 2
    assert told["tile 0.inside 2"] == 5
    assert told["tile 1.lanes"] == 4
    assert told["level 3 of 4"] == 2 + 4
    assert told["level 0 of 2"] == 3
    assert told["body"] == 2 + 4 + 2
    assert told["SampleCategorical 0"] == pytest.approx(np.log2(65))
    assert told["SampleCategorical 0 is 2"] == 1
    assert told["SampleComputeLocation 0 at -1"] == 1


def test_lanes_tell_a_full_vector_from_a_remainder() -> None:
    sketch = toy_sketch((2,), located=False, name="a")
    lanes = named_features(sketch, np.array([[1, 48], [1, 16], [1, 7], [1, 128]]))["tile 0.lanes"]
    assert lanes.tolist() == [4, 4, 0, 6]


def test_sketches_share_names_and_differ_in_their_own() -> None:
    one = named_features(toy_sketch((4, 4, 2), located=True, name="a"), ROW)
    other = named_features(toy_sketch((4, 4, 2), located=False, name="b"), ROW[:, :10])
    assert set(other) - set(one) == {name for name in other if name.startswith("sketch ")}
    assert len(set(other) & set(one)) > 15


def test_unknown_names_are_dropped_and_missing_ones_are_zero() -> None:
    named = {"a": np.array([1.0, 2.0]), "new": np.array([5.0, 5.0])}
    assert table(named, {"a": 1, "gone": 0}, 2).tolist() == [[0, 1], [0, 2]]
    assert emphasis({"tile 0.lanes": 0, "tile 0.1": 1, "body": 2}).tolist() == [2.5, 1.0, 0.5]


def test_a_sketch_that_decides_nothing_and_one_of_another_dialect() -> None:
    empty = named_features(toy_sketch((), located=False, name="only"), np.zeros((3, 0), np.int64))
    assert [column.shape for column in empty.values()] == [(3,)]
    program = matmul_measurement().program
    named = named_features(program.sketch, np.array([program.decisions]))
    assert named["tile 0.1"][0] == 3


def test_the_ranker_needs_no_torch() -> None:
    code = "import sys, tensorese.search.rankers.online; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
