"""A row of one task carried over to another: each slot as near to the old one as is legal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorese.arrays import Ints
from tensorese.space.decisions import DecisionSpace
from tensorese.space.slots import INLINE, Location, Tile

_NEAREST = 4  # factorisations per tile that variants are made of
_VARIANTS = 64  # tried at once where the nearest of each slot are not legal together


def same_make(space: DecisionSpace, slots: Sequence[tuple[int, int]]) -> bool:
    """Whether a sketch with these slots decides on the same things: tiles of as many parts."""
    return [length for _, length in space.sketch.slots] == [length for _, length in slots]


def refit_row(space: DecisionSpace, row: Sequence[int], rng: np.random.Generator) -> Ints | None:
    """The nearest legal row, a variant of it, or None when none of those tried is legal."""
    old = np.asarray(row, dtype=np.int64)
    rows = np.repeat(old[None], _VARIANTS, axis=0)
    cost = np.zeros(_VARIANTS)
    for slot in space.slots:
        here = slice(slot.column, slot.column + slot.width)
        if isinstance(slot, Location):
            rows[:, slot.column] = _located(space, slot, rows)
        elif isinstance(slot, Tile):
            near, gaps = _nearest(slot, old[here])
            picked = rng.integers(len(near), size=_VARIANTS)
            picked[0] = 0
            rows[:, here] = near[picked]
            cost += gaps[picked]
        else:
            rows[:, slot.column] = np.clip(old[slot.column], 0, len(slot.options) - 1)
    legal = np.flatnonzero(space.legal(rows))
    return rows[legal[np.argmin(cost[legal])]] if len(legal) else None


def _nearest(slot: Tile, old: Ints) -> tuple[Ints, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Factorisations by distance on the log scale; inner levels make the kernel and count more."""
    weights = np.linspace(0.25, 1.0, slot.parts)
    gaps = (np.abs(np.log2(slot.table) - np.log2(np.maximum(old, 1))) * weights).sum(1)
    order = np.argsort(gaps, kind="stable")[:_NEAREST]
    return slot.table[order], gaps[order]


def _located(space: DecisionSpace, slot: Location, rows: Ints) -> Ints:
    """The offered location nearest to the wish; a loop rather than none."""
    mask = space.locators[slot.column].mask(rows)
    values = np.arange(mask.shape[1]) + INLINE
    gap = np.abs(values[None, :] - rows[:, slot.column : slot.column + 1]).astype(np.float64)
    gap[:, values < 0] += 0.5 * (rows[:, slot.column : slot.column + 1] >= 0)
    gap[~mask] = np.inf
    nearest: Ints = gap.argmin(1) + INLINE
    return nearest
