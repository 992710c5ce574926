"""Neighbours of rows: mutation, crossover, and how far apart two rows are."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Ints
from tensorese.space.decisions import DecisionSpace
from tensorese.space.slots import Location, Slot, Tile
from tensorese.space.tiles import divisors


def mutate(space: DecisionSpace, rows: Ints, rng: np.random.Generator, tries: int = 8) -> Ints:
    """Each row with one slot changed, legal; a row that resists `tries` times stays as it is.

    A tile moves a factor from one part to another, half of the time, and is drawn anew otherwise.
    """
    return _vary(space, rows, lambda at: _mutated(space, rows[at], rng), rng, tries)


def cross(
    space: DecisionSpace, rows: Ints, others: Ints, rng: np.random.Generator, tries: int = 8
) -> Ints:
    """Each slot from either parent, legal; where no mix is, the first parent stays."""

    def mix(at: Ints) -> Ints:
        mixed = rows[at].copy()
        for slot in space.slots:
            here = slice(slot.column, slot.column + slot.width)
            take = rng.random(len(at)) < 0.5
            mixed[take, here] = others[at[take], here]
        return mixed

    return _vary(space, rows, mix, rng, tries)


def distance(space: DecisionSpace, rows: Ints, others: Ints) -> npt.NDArray[np.float64]:
    """`[n, m]`: factors of two moved between parts of tiles, plus 1 per other slot that differs."""
    distances = np.zeros((len(rows), len(others)))
    for slot in space.slots:
        mine = rows[:, None, slot.column : slot.column + slot.width]
        theirs = others[None, :, slot.column : slot.column + slot.width]
        if isinstance(slot, Tile):
            distances += np.abs(np.log2(mine) - np.log2(theirs)).sum(2) / 2
        else:
            distances += (mine != theirs).any(2)
    return distances


def _vary(
    space: DecisionSpace,
    rows: Ints,
    vary: Callable[[Ints], Ints],
    rng: np.random.Generator,
    tries: int,
) -> Ints:
    result = rows.copy()
    waiting = np.arange(len(rows))
    for _ in range(tries):
        if not len(waiting):
            break
        changed = space.refit(vary(waiting), rng)
        good = space.legal(changed, refitted=True) & (changed != rows[waiting]).any(1)
        result[waiting[good]] = changed[good]
        waiting = waiting[~good]
    return result


def _mutated(space: DecisionSpace, rows: Ints, rng: np.random.Generator) -> Ints:
    """One slot of each row drawn anew; the row may come out unchanged or illegal."""
    rows = rows.copy()
    open_slots = [slot for slot in space.slots if _is_open(slot)]
    if not open_slots:
        return rows
    picked = rng.integers(len(open_slots), size=len(rows))
    for index, slot in enumerate(open_slots):
        at = np.flatnonzero(picked == index)
        if not len(at):
            continue
        if isinstance(slot, Location):
            space.draw_location(slot, rows, at, rng)
            continue
        here = slice(slot.column, slot.column + slot.width)
        moving = np.flatnonzero(rng.random(len(at)) < 0.5) if isinstance(slot, Tile) else at[:0]
        moved = rows[at[moving], here]
        rows[at, here] = slot.table[rng.integers(len(slot.table), size=len(at))]
        if isinstance(slot, Tile) and len(moving):
            rows[at[moving], here] = _moved(moved, slot.extent, rng)
    return rows


def _is_open(slot: Slot) -> bool:
    return isinstance(slot, Location) or len(slot.table) > 1


def _moved(tiles: Ints, extent: int, rng: np.random.Generator) -> Ints:
    """A random divisor of one part goes to another part."""
    tiles = tiles.copy()
    n, parts = tiles.shape
    every = np.arange(n)
    source = rng.integers(parts, size=n)
    target = (source + rng.integers(1, parts, size=n)) % parts
    values, table, counts = divisor_table(extent)
    at = np.minimum(np.searchsorted(values, tiles[every, source]), len(values) - 1)
    divisor = table[at, (rng.random(n) * counts[at]).astype(np.int64)]
    tiles[every, source] //= divisor
    tiles[every, target] *= divisor
    return tiles


@lru_cache(maxsize=512)
def divisor_table(extent: int) -> tuple[Ints, Ints, Ints]:
    """The divisors of an extent; the divisors of each, padded, 1 left out where there is another;
    how many those are."""
    values = divisors(extent)
    lists = [[d for d in values if value % d == 0][1:] or [1] for value in values]
    table = np.ones((len(values), max(map(len, lists))), dtype=np.int64)
    for row, factors in zip(table, lists, strict=True):
        row[: len(factors)] = factors
    return np.array(values), table, np.array([len(factors) for factors in lists], dtype=np.int64)
