"""How many rows a sketch's space has; the target's limits are not considered."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Ints
from tensorese.space.decisions import DecisionSpace
from tensorese.space.locations import LoopRule, Pattern, joint_patterns
from tensorese.space.slots import INLINE, Choice, Tile
from tensorese.space.tiles import Bools

_MAX_PATTERNS = 4096
_ESTIMATED_FROM = 512  # tilings, where there are more patterns


def count(space: DecisionSpace) -> int:
    """Tiles and choices multiply; locations are counted under the tiles that offer them."""
    choices = math.prod(len(s.table) for s in space.slots if isinstance(s, Choice))
    tiles = [s for s in space.slots if isinstance(s, Tile)]
    locators = [space.locators[s.column] for s in space.locations]
    rules = [rule for rule in locators if isinstance(rule, LoopRule)]
    if len(rules) == len(locators):
        return choices * sum(_matching(tiles, pattern) for pattern in joint_patterns(rules))
    return choices * _enumerated(space, tiles)


def _matching(tiles: Sequence[Tile], pattern: Pattern) -> int:
    """Tile combinations under which each group of columns is, or is not, all ones."""
    total = 1
    for tile in tiles:
        held = np.ones(len(tile.table), dtype=np.bool_)
        for columns, short in pattern.items():
            mine = [c - tile.column for c in columns if 0 <= c - tile.column < tile.parts]
            if mine:
                held &= _is_short(tile.table, mine) == short
        total *= int(held.sum())
    return total


def _is_short(table: Ints, parts: list[int]) -> Bools:
    short: Bools = (table[:, parts] == 1).all(1)
    return short


def _enumerated(space: DecisionSpace, tiles: Sequence[Tile]) -> int:
    """Walks the locations under every pattern of tile parts longer than 1: nothing else of a tile
    decides about them. With very many patterns it is an estimate from a few hundred tilings."""
    rows, weights = _patterns(space, tiles)
    for slot in space.locations[:-1]:
        at, value = np.nonzero(space.locators[slot.column].mask(rows))
        rows, weights = rows[at], weights[at]
        rows[:, slot.column] = value + INLINE
    last = space.locators[space.locations[-1].column].mask(rows).sum(1)
    return round(float((weights * last).sum()))


def _patterns(space: DecisionSpace, tiles: Sequence[Tile]) -> tuple[Ints, npt.NDArray[np.float64]]:
    """One row per pattern of tile parts longer than 1, and how many tilings it stands for."""
    groups = [_grouped(tile) for tile in tiles]
    rows = np.zeros((1, space.n_columns), dtype=np.int64)
    weights = np.ones(1)
    if math.prod(len(sizes) for _, sizes in groups) > _MAX_PATTERNS:
        every = float(math.prod(len(tile.table) for tile in tiles))
        rows = np.zeros((_ESTIMATED_FROM, space.n_columns), dtype=np.int64)
        rng = np.random.default_rng(0)
        for tile in tiles:
            picked = rng.integers(len(tile.table), size=len(rows))
            rows[:, tile.column : tile.column + tile.parts] = tile.table[picked]
        return rows, np.full(len(rows), every / len(rows))
    for tile, (parts, sizes) in zip(tiles, groups, strict=True):
        weights = np.repeat(weights, len(sizes)) * np.tile(sizes, len(weights))
        part = np.tile(parts, (len(rows), 1))
        rows = np.repeat(rows, len(sizes), axis=0)
        rows[:, tile.column : tile.column + tile.parts] = part
    return rows, weights


def _grouped(tile: Tile) -> tuple[Ints, npt.NDArray[np.float64]]:
    """One factorisation per pattern, and how many share it."""
    _, first, sizes = np.unique(tile.table > 1, axis=0, return_index=True, return_counts=True)
    return tile.table[first], sizes.astype(np.float64)
