"""Starting from the store: own programs, relatives' programs fitted to new extents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from search_support import drawn, measured, one_row_space, seconds, task_state, toy_space
from tensorese.records.nouns import Platform, Status, TensorSpec
from tensorese.records.store import Store
from tensorese.search.contracts import TaskState
from tensorese.search.proposers.refit import refit_row
from tensorese.search.proposers.warm_start import seeds, shape_distance

pytestmark = pytest.mark.null

SMALL, LARGE = (64, 48, 32), (128, 96, 32)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store", create=True)


def _fill(store: Store, state: TaskState, n: int = 20, **more: str) -> None:
    store.append_many(measured(state, drawn(state, n), **more))


def test_an_empty_store_has_nothing_to_offer(store: Store) -> None:
    assert seeds(task_state(), store, 8) == []


def test_the_best_of_the_same_task_come_first(store: Store) -> None:
    state = task_state()
    _fill(store, state)
    found = seeds(state, store, 6)
    times = [seconds(p.sketch, p.row) for p in found]
    every = sorted(seconds(p.sketch, p.row) for p in set(drawn(state, 20)))
    np.testing.assert_allclose(times, every[:6])
    assert {p.origin for p in found} == {"store"}
    state.promise(found)
    again = seeds(state, store, 6)
    assert not {(p.sketch, p.row) for p in again} & {(p.sketch, p.row) for p in found}


def test_a_block_may_be_named_after_another_place_in_another_network(store: Store) -> None:
    there, here = (task_state(toy_space(name=name)) for name in ("lv7_red", "lv86_red"))
    _fill(store, there)
    assert {p.origin for p in seeds(here, store, 4)} == {"store"}
    assert here.sketch_like(toy_space(name="lv7_mean").sketch) is None


def test_relatives_are_fitted_to_the_extents(store: Store) -> None:
    other = task_state(extents=SMALL)
    _fill(store, other, 40)
    state = task_state(extents=LARGE)
    found = seeds(state, store, 12)
    assert len(found) == 12
    assert {p.origin for p in found} == {"store:similar"}
    for p in found:
        assert state.space.sketches[p.sketch].legal(np.array([p.row])).all()
    chance = np.median([seconds(p.sketch, p.row) for p in drawn(state, 200, seed=9)])
    assert np.median([seconds(p.sketch, p.row) for p in found]) < 0.7 * chance


def test_own_programs_come_before_relatives(store: Store) -> None:
    state = task_state(extents=LARGE)
    _fill(store, task_state(extents=SMALL))
    _fill(store, state, 2)
    origins = [p.origin for p in seeds(state, store, 8)]
    assert origins == ["store"] * 4 + ["store:similar"] * 4


def test_rows_marked_test_are_never_read(store: Store) -> None:
    state = task_state()
    _fill(store, state, split="test")
    _fill(store, task_state(extents=LARGE), split="test")
    assert seeds(state, store, 8) == []


def test_failures_and_other_platforms_are_never_read(store: Store) -> None:
    state = task_state()
    rows = drawn(state, 8)
    store.append_many(measured(state, rows, Status.RUN_ERROR))
    elsewhere = [replace(m, platform=Platform(name="else")) for m in measured(state, rows)]
    store.append_many(elsewhere)
    assert seeds(state, store, 8) == []


def test_another_kind_of_task_is_no_relative(store: Store) -> None:
    _fill(store, task_state(extents=SMALL))
    assert seeds(task_state(one_row_space(), extents=LARGE), store, 8) == []
    state = task_state(extents=SMALL)
    softmax = replace(state.workload, operator="softmax")
    assert shape_distance(state.workload, softmax) == float("inf")
    half = tuple(TensorSpec(shape=a.shape, dtype="float16") for a in state.workload.args)
    assert shape_distance(state.workload, replace(state.workload, args=half)) == float("inf")
    assert shape_distance(state.workload, state.workload) == 0.0


def test_a_row_that_fits_already_is_kept() -> None:
    space = toy_space(SMALL)
    rng = np.random.default_rng(0)
    for row in space.sample(20, rng):
        fitted = refit_row(space, row, rng)
        assert fitted is not None
        np.testing.assert_array_equal(fitted, row)


def test_a_refitted_row_keeps_the_inner_tiles() -> None:
    row = (4, 1, 4, 4, 1, 3, 1, 16, 8, 4, 2, 1)
    fitted = refit_row(toy_space(LARGE), row, np.random.default_rng(0))
    assert fitted is not None
    assert fitted[:8].tolist() == [8, 1, 4, 4, 2, 3, 1, 16]
    assert fitted[8:].tolist() == [8, 4, 2, 1]
