"""Tiles drawn together so that a product of their parts is within bounds, still uniformly.

Of 200 random tilings of a depthwise convolution one has an allowed number of threads. Grouping each
tile's factorisations by what they contribute to the product leaves few combinations to weigh.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Ints
from tensorese.space.limits import Limit, Product
from tensorese.space.slots import Slot, Tile

_MAX_COMBINATIONS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class TileGroups:
    """A tile's table in groups of equal contribution."""

    tile: Tile
    order: Ints
    """Rows of the table, group after group."""
    starts: Ints
    sizes: Ints
    values: Ints
    """What each group contributes to the product."""

    def pick(self, groups: Ints, rng: np.random.Generator) -> Ints:
        """One row of the table out of each of the groups named."""
        within = (rng.random(len(groups)) * self.sizes[groups]).astype(np.int64)
        rows: Ints = self.tile.table[self.order[self.starts[groups] + within]]
        return rows


@dataclass(frozen=True, kw_only=True)
class Bundle:
    groups: tuple[TileGroups, ...]
    combinations: Ints
    """`[c, tiles]`: the groups that go together within the bounds."""
    shares: npt.NDArray[np.float64]
    """Cumulative share of the legal tilings that each combination has."""

    def fill(self, rows: Ints, rng: np.random.Generator) -> None:
        picked = np.searchsorted(self.shares, rng.random(len(rows)), side="right")
        for index, one in enumerate(self.groups):
            tile = one.tile
            chosen = self.combinations[picked, index]
            rows[:, tile.column : tile.column + tile.parts] = one.pick(chosen, rng)


def find_bundles(slots: Iterable[Slot], limits: Iterable[Limit]) -> list[Bundle]:
    """One bundle per product that shares no tile with another; the rest is left to rejection."""
    tiles = [slot for slot in slots if isinstance(slot, Tile)]
    taken: set[int] = set()
    bundles = []
    for limit in limits:
        if not isinstance(limit, Product):
            continue
        mine = [t for t in tiles if set(limit.columns) & set(range(t.column, t.column + t.parts))]
        if mine and not taken & {tile.column for tile in mine}:
            bundle = _bundle(mine, limit)
            if bundle is not None:
                bundles.append(bundle)
                taken |= {tile.column for tile in mine}
    return bundles


def _bundle(tiles: Sequence[Tile], limit: Product) -> Bundle | None:
    groups = tuple(_groups(tile, limit) for tile in tiles)
    if math.prod(len(one.values) for one in groups) > _MAX_COMBINATIONS:
        return None
    mesh = np.meshgrid(*(np.arange(len(one.values)) for one in groups), indexing="ij")
    combinations = np.stack([axis.reshape(-1) for axis in mesh], axis=1)
    product = np.ones(len(combinations))
    weight = np.ones(len(combinations))
    for index, one in enumerate(groups):
        product *= one.values[combinations[:, index]]
        weight *= one.sizes[combinations[:, index]]
    within = (product >= limit.low) & (product <= limit.high)
    if not within.any():
        return None
    shares = weight[within].cumsum()
    return Bundle(groups=groups, combinations=combinations[within], shares=shares / shares[-1])


def _groups(tile: Tile, limit: Product) -> TileGroups:
    mine = [c - tile.column for c in limit.columns if 0 <= c - tile.column < tile.parts]
    contributed = tile.table[:, mine].prod(1)
    order = np.argsort(contributed, kind="stable")
    values, starts, sizes = np.unique(contributed[order], return_index=True, return_counts=True)
    return TileGroups(tile=tile, order=order, starts=starts, sizes=sizes, values=values)
