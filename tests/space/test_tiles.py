from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorese.space.tiles import divisors, factorisations, unique_rows

pytestmark = pytest.mark.null


@given(st.integers(1, 120), st.integers(1, 4), st.sampled_from([-1, 4, 64]))
def test_every_factorisation_once(extent: int, parts: int, limit: int) -> None:
    expected = [
        row
        for row in itertools.product(divisors(extent), repeat=parts)
        if _product(row) == extent and (limit < 0 or row[-1] <= limit)
    ]
    assert factorisations(extent, parts, limit).tolist() == [list(row) for row in sorted(expected)]


def _product(row: tuple[int, ...]) -> int:
    total = 1
    for value in row:
        total *= value
    return total


def test_divisors_are_sorted_and_complete() -> None:
    assert divisors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36]
    assert divisors(1) == [1]
    assert divisors(13) == [1, 13]


def test_tables_are_shared_and_cannot_be_written() -> None:
    table = factorisations(64, 3)
    assert table is factorisations(64, 3)
    with pytest.raises(ValueError, match="read-only"):
        table[0, 0] = 5


@pytest.mark.parametrize("shape", [(0, 3), (5, 0), (0, 0), (200, 1), (400, 3), (300, 9)])
@pytest.mark.parametrize("spread", [3, 1 << 20])
def test_distinct_rows_as_numpy_finds_them(shape: tuple[int, int], spread: int) -> None:
    """Of few values and of too many for one number a row."""
    rows = np.random.default_rng(0).integers(-2, spread, size=shape)
    rows[shape[0] // 2 :] = rows[: shape[0] - shape[0] // 2]
    unique, first, which = unique_rows(rows)
    assert unique.tolist() == [list(row) for row in sorted(set(map(tuple, rows.tolist())))]
    np.testing.assert_array_equal(unique[which], rows)
    np.testing.assert_array_equal(rows[first], unique)
    assert all((rows[:at] != rows[at]).any(1).all() for at in first if shape[1])
