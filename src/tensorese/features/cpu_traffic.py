"""What a CPU's memory sees of a loop nest: bytes fetched into each cache, pages, sets that clash.

Loops are walked from inside out. The widest part of the nest whose data fit a cache is fetched
once; what lies around it fetches an operand again with every loop from the first that moves it.
Shape legend: n programs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tensorese.arrays import Floats64
from tensorese.language.accesses import Operand, iterators, touched

LINE, PAGE = 64, 4096


class TrafficLoop(NamedTuple):
    axis: int
    length: Floats64
    """`[n]`"""


def bytes_of(operand: Operand, cells: Floats64) -> Floats64:
    """Of whole cache lines; a layout that follows the loops wastes none."""
    if operand.free or not operand.shape:
        return np.asarray(cells.prod(1) * operand.element)
    last = cells[:, -1] * operand.element
    whole = cells[:, -1] >= operand.shape[-1]
    lines = np.where(whole, last, np.ceil(last / LINE) * LINE)
    return np.asarray(cells[:, :-1].prod(1) * lines)


def traffic(
    operands: Sequence[Operand], loops: Sequence[TrafficLoop], axes: int, sizes: Sequence[float]
) -> Floats64:
    """`[sizes, operands, n]`: bytes that each operand brings into a cache of each size.

    `loops` run from inside out.
    """
    n = len(loops[0].length)
    moved_by = [frozenset().union(*map(iterators, one.indices)) for one in operands]
    lengths = np.ones((n, axes))
    held = [bytes_of(one, touched(one, lengths)) for one in operands]
    fetched = np.tile(np.stack(held), (len(sizes), 1, 1))
    stays = np.ones(fetched.shape, dtype=bool)
    for loop in loops:
        lengths[:, loop.axis] *= loop.length
        for k, one in enumerate(operands):
            if loop.axis in moved_by[k]:
                held[k] = bytes_of(one, touched(one, lengths))
        needed = sum(held)
        for c, size in enumerate(sizes):
            fits = needed <= size
            for k in range(len(operands)):
                if loop.axis in moved_by[k]:
                    stays[c, k] &= loop.length == 1
                again = np.where(stays[c, k], 1.0, loop.length)
                fetched[c, k] = np.where(fits, held[k], fetched[c, k] * again)
                stays[c, k] |= fits
    return fetched


def pages(operand: Operand, cells: Floats64) -> Floats64:
    """`[n]`: pages of memory that a box of an operand touches."""
    if operand.free:
        return np.asarray(np.ceil(cells.prod(1) * operand.element / PAGE))
    apart, together = np.ones(len(cells)), np.full(len(cells), float(operand.element))
    for dim, stride in enumerate(_strides(operand)):
        if stride >= PAGE:
            apart = apart * cells[:, dim]
        else:
            together = np.maximum(together, stride * cells[:, dim])
    return np.asarray(apart * np.ceil(together / PAGE))


def clashes(operand: Operand, cells: Floats64) -> Floats64:
    """`[n]`: rows of a box that want the same set of a cache whose ways are a page each.

    Rows that lie a power of two apart fall on few sets, however large the cache.
    """
    worst = np.full(len(cells), 1.0 / LINE)
    if operand.free:
        return worst
    for dim, stride in enumerate(_strides(operand)[:-1]):
        worst = np.maximum(worst, cells[:, dim] * math.gcd(stride, PAGE) / PAGE)
    return worst


def _strides(operand: Operand) -> list[int]:
    """Bytes from one index to the next, by dimension."""
    return [operand.element * math.prod(operand.shape[d + 1 :]) for d in range(len(operand.shape))]
