"""Which values may come next: the one place where sampling by column and generation look."""

from __future__ import annotations

import numpy as np

from tensorese.arrays import Ints
from tensorese.space.decisions import DecisionSpace
from tensorese.space.slots import INLINE, Choice, Location, Slot, Tile
from tensorese.space.tiles import Bools, SpaceError, divisors


def values(space: DecisionSpace, column: int) -> Ints:
    """Every value the column can take in some row, ascending."""
    slot = _slot_at(space, column)
    if isinstance(slot, Tile):
        return np.array(divisors(slot.extent), dtype=np.int64)
    if isinstance(slot, Choice):
        return np.arange(len(slot.options), dtype=np.int64)
    return np.arange(space.locators[column].width, dtype=np.int64) + INLINE


def allowed(space: DecisionSpace, prefixes: Ints) -> Bools:
    """`[n, len(values(space, k))]` for prefixes `[n, k]`: never False for a legal completion.

    A True may still end in no legal row: limits are checked against the least (and, for threads,
    the most) that the undecided columns can contribute.
    """
    n, column = prefixes.shape
    slot = _slot_at(space, column)
    options = values(space, column)
    rows = np.ones((n, space.n_columns), dtype=np.int64)
    rows[:, :column] = prefixes
    if isinstance(slot, Location):
        return space.locators[column].mask(rows)
    if isinstance(slot, Choice):
        mask = np.ones((n, len(options)), dtype=np.bool_)
    else:
        mask = _divisible(slot, prefixes, column, options)
    at, value = np.nonzero(mask)
    if space.limits and len(at):
        low = rows[at]
        low[:, column] = options[value]
        high = _most(space, low, column + 1)
        for limit in space.limits:
            mask[at, value] &= limit.reachable(low, high)
    return mask


def _slot_at(space: DecisionSpace, column: int) -> Slot:
    for slot in space.slots:
        if slot.column <= column < slot.column + slot.width:
            return slot
    raise SpaceError(
        f"a prefix must be shorter than {space.n_columns} columns, but got {column}; "
        "the row is complete"
    )


def _divisible(slot: Tile, prefixes: Ints, column: int, options: Ints) -> Bools:
    """Values that divide what is left of the extent and let the innermost part keep its limit."""
    left = slot.extent // prefixes[:, slot.column :].prod(1)
    after = slot.parts - (column - slot.column) - 1
    rest, remainder = np.divmod(left[:, None], options[None, :])
    mask: Bools = remainder == 0
    if after == 0:
        mask &= rest == 1
    if slot.limit >= 0 and after < 2:
        innermost = options[None, :] if after == 0 else rest
        mask &= innermost <= slot.limit
    return mask


def _most(space: DecisionSpace, low: Ints, decided: int) -> Ints:
    """The rows with each undecided column as large as its tile could still make it."""
    high = low.copy()
    for slot in space.slots:
        end = slot.column + slot.width
        if isinstance(slot, Tile) and end > decided:
            start = max(slot.column, decided)
            left = slot.extent // low[:, slot.column : start].prod(1)
            high[:, start:end] = left[:, None]
    return high
