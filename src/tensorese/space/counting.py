"""How many rows a sketch's space has, exactly; the target's limits are not considered."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tensorese.space.decisions import DecisionSpace
from tensorese.space.locations import LoopRule, Pattern, joint_patterns
from tensorese.space.slots import INLINE, Choice, Location, Tile
from tensorese.space.tiles import Bools, Ints


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
    """Walks every tile combination and every location: for the small spaces of tables."""
    rows = np.zeros((1, space.n_columns), dtype=np.int64)
    for slot in space.slots:
        if isinstance(slot, Tile):
            rows = np.repeat(rows, len(slot.table), axis=0)
            part = np.tile(slot.table, (len(rows) // len(slot.table), 1))
            rows[:, slot.column : slot.column + slot.width] = part
        elif isinstance(slot, Location):
            at, value = np.nonzero(space.locators[slot.column].mask(rows))
            rows = rows[at]
            rows[:, slot.column] = value + INLINE
    return len(rows)
