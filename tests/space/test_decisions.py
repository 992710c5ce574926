from __future__ import annotations

import numpy as np
import pytest

from space_support import every_row, small_space
from tensorese.space.counting import count
from tensorese.space.decisions import DecisionSpace
from tensorese.space.prefixes import allowed, values
from tensorese.space.slots import Tile
from tensorese.space.tiles import SpaceError
from tensorese.space.variation import cross, distance, divisor_table, mutate

pytestmark = pytest.mark.null

SPACES = pytest.mark.parametrize("space", [small_space(), small_space(limited=True)])


def test_count_equals_enumeration() -> None:
    space = small_space()
    rows = every_row(space)
    assert count(space) == int(space.inside(rows).sum()) < len(rows)


@SPACES
def test_samples_are_legal_and_repeatable(space: DecisionSpace) -> None:
    rows = space.sample(500, np.random.default_rng(3))
    assert len(rows) == 500
    assert space.legal(rows).all()
    assert (rows == space.sample(500, np.random.default_rng(3))).all()
    assert len(np.unique(rows, axis=0)) > 100


def test_tiles_are_drawn_uniformly() -> None:
    space = small_space()
    rows = space.draw(9000, np.random.default_rng(0))
    tile = space.slots[0]
    assert isinstance(tile, Tile)
    _, counts = np.unique(rows[:, :3], axis=0, return_counts=True)
    assert len(counts) == len(tile.table)
    expected = 9000 / len(counts)
    assert float(((counts - expected) ** 2 / expected).sum()) < 30  # chi-square, 8 degrees


def test_rows_outside_are_refused() -> None:
    space = small_space()
    good = space.sample(1, np.random.default_rng(0))
    for column, value in ((0, 3), (2, 8), (7, 3), (8, 7), (8, -3)):
        bad = good.copy()
        bad[0, column] = value
        assert not space.inside(bad)[0]


@SPACES
def test_variation_stays_legal_and_changes(space: DecisionSpace) -> None:
    rng = np.random.default_rng(5)
    rows = space.sample(400, rng)
    mutated = mutate(space, rows, rng)
    assert space.legal(mutated).all()
    assert (mutated != rows).any(1).mean() > 0.95
    crossed = cross(space, rows, rows[::-1], rng)
    assert space.legal(crossed).all()
    assert (crossed != rows).any(1).mean() > 0.5


def test_distance_counts_moved_factors_and_changed_slots() -> None:
    space = small_space()
    base = np.array([[8, 1, 1, 6, 1, 4, 1, 0, -1]])
    moved = np.array([[2, 4, 1, 6, 1, 4, 1, 2, -1]])
    assert distance(space, base, base)[0, 0] == 0
    assert distance(space, base, moved)[0, 0] == 2 + 1
    assert distance(space, moved, base)[0, 0] == distance(space, base, moved)[0, 0]


@SPACES
def test_allowed_never_removes_a_legal_completion(space: DecisionSpace) -> None:
    rows = every_row(space)
    legal = rows[space.legal(rows)]
    for column in range(space.n_columns):
        mask = allowed(space, legal[:, :column])
        options = values(space, column)
        position = np.searchsorted(options, legal[:, column])
        assert (options[position] == legal[:, column]).all()
        assert mask[np.arange(len(legal)), position].all()


def test_allowed_is_exact_without_limits() -> None:
    """Walking the masks from the empty prefix meets the rows of the space and no others."""
    space = small_space()
    prefixes = np.zeros((1, 0), dtype=np.int64)
    for column in range(space.n_columns):
        at, value = np.nonzero(allowed(space, prefixes))
        prefixes = np.hstack([prefixes[at], values(space, column)[value][:, None]])
    rows = every_row(space)
    expected = rows[space.inside(rows)]
    assert sorted(map(tuple, prefixes.tolist())) == sorted(map(tuple, expected.tolist()))


def test_limits_prune_prefixes() -> None:
    pruned = small_space(limited=True)
    prefix = np.array([[1, 8, 1]], dtype=np.int64)  # 8 threads already: column 4 must be 1
    prefix = np.hstack([prefix, [[3]]])
    options = values(pruned, 4)
    assert options[allowed(small_space(), prefix)[0]].tolist() == [2]
    assert not allowed(pruned, prefix).any()


def test_a_complete_row_has_no_next_value() -> None:
    space = small_space()
    row = space.sample(1, np.random.default_rng(0))
    with pytest.raises(SpaceError, match="the row is complete"):
        allowed(space, row)


def test_refitted_rows_are_judged_as_any_others() -> None:
    space = small_space(limited=True)
    rng = np.random.default_rng(0)
    rows = space.refit(every_row(space)[::7], rng)
    np.testing.assert_array_equal(space.legal(rows, refitted=True), space.legal(rows))


def test_divisors_are_those_of_every_divisor() -> None:
    whole, table, counts = divisor_table(12)
    assert whole.tolist() == [1, 2, 3, 4, 6, 12]
    found = [row[:count].tolist() for row, count in zip(table, counts, strict=True)]
    assert found == [[1], [2], [3], [2, 4], [2, 3, 6], [2, 3, 4, 6, 12]]
