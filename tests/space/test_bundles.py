from __future__ import annotations

import numpy as np
import pytest

from space_support import small_space
from tensorese.space.bundles import find_bundles
from tensorese.space.limits import Product
from tensorese.space.slots import Tile

pytestmark = pytest.mark.null

TILES = (
    Tile(column=0, extent=12, parts=3, limit=-1),
    Tile(column=3, extent=8, parts=2, limit=4),
)
LIMIT = Product(columns=(1, 4), low=4, high=8)


def test_every_tiling_within_the_bounds_is_equally_likely() -> None:
    (bundle,) = find_bundles(TILES, [LIMIT])
    rows = np.zeros((40_000, 5), dtype=np.int64)
    bundle.fill(rows, np.random.default_rng(0))
    assert LIMIT.legal(rows).all()
    found, counts = np.unique(rows, axis=0, return_counts=True)
    everything = [np.concatenate([a, b]) for a in TILES[0].table for b in TILES[1].table]
    expected = np.array([row for row in everything if LIMIT.legal(row[None])[0]])
    assert found.tolist() == sorted(expected.tolist())
    even = len(rows) / len(expected)
    chi_square = float(((counts - even) ** 2 / even).sum())
    assert chi_square < len(expected) + 4 * (2 * len(expected)) ** 0.5


def test_products_that_share_a_tile_are_left_to_rejection() -> None:
    other = Product(columns=(0, 3), low=2)
    assert len(find_bundles(TILES, [LIMIT, other])) == 1
    assert len(find_bundles(TILES, [])) == 0


def test_a_product_no_tiling_reaches_is_left_to_rejection() -> None:
    assert find_bundles(TILES, [Product(columns=(1, 4), low=1000)]) == []


def test_limited_spaces_draw_within_their_products() -> None:
    space = small_space(limited=True)
    rows = space.draw(200, np.random.default_rng(0))
    assert space.limits[0].legal(rows).all()
