"""How often blocks without tiles are computed, by where the schedule puts them.

A sum that is computed inside the loop over the elements that use it is computed for each of them:
the same softmax then takes a thousand times as long. Where each block goes is a decision; what it
then costs follows from what its consumers read. Loops are those of the module; a reduction that is
cut in two counts as one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tensorese.language.accesses import Block, Operand, box

INLINE, ROOT = -2, -1
LoopRun = tuple[int, float]
"""Number, and how often it runs."""


@dataclass
class _Placed:
    """A block with the loops around it now."""

    block: Block
    loops: list[LoopRun]
    shared: int = 0
    """How many of its loops are its consumers'."""
    users: list[_Placed] = field(default_factory=list)

    @property
    def work(self) -> float:
        return math.prod(extent for _, extent in self.loops)

    def inside(self, depth: int) -> list[float]:
        """Values that each iterator takes in the loops deeper than `depth`."""
        if depth < self.shared - 1:
            spatial = iter(self.needed(depth))
            return [
                float(extent) if reduces else next(spatial)
                for extent, reduces in zip(self.block.extents, self.block.reduces, strict=True)
            ]
        own = range(self.shared, len(self.loops))
        return [self.loops[k][1] if k > depth else 1.0 for k in own]

    def needed(self, depth: int) -> list[float]:
        """Values of each spatial iterator that its users ask for in loops deeper than `depth`."""
        per_read = [
            _by_iterator(self.block, read, user.inside(depth))
            for user in self.users
            for read in user.block.reads
            if read.buffer == self.block.writes[0].buffer
        ]
        return [max(values) for values in zip(*per_read, strict=True)]


def _by_iterator(block: Block, read: Operand, lengths: list[float]) -> list[float]:
    cells = box(read, np.array([lengths]))[0]
    touched = {
        index[1]: float(cell)
        for index, cell in zip(block.writes[0].indices, cells, strict=False)  # a scalar has none
        if index[0] == "i"
    }
    return [
        min(touched.get(k, extent), extent)
        for k, (extent, reduces) in enumerate(zip(block.extents, block.reduces, strict=True))
        if not reduces
    ]


def repeated(
    blocks: Sequence[Block],
    inlined: Sequence[str],
    located: Sequence[str],
    rows: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """`[n, located + 1]`: work of each located block, and of all, over what it is at the root.

    `rows` are where each goes: a loop of its users, `ROOT` or `INLINE`.
    """
    distinct, back = np.unique(rows, axis=0, return_inverse=True)
    work = np.array([_one(blocks, inlined, located, row.tolist()) for row in distinct])
    return np.asarray(work[back.reshape(-1)])


def _one(
    blocks: Sequence[Block], inlined: Sequence[str], located: Sequence[str], row: Sequence[float]
) -> list[float]:
    placed: dict[str, _Placed] = {}
    for n, block in enumerate(blocks):
        loops = [(100 * n + k, float(extent)) for k, extent in enumerate(block.extents)]
        placed[block.name] = _Placed(block, loops)
    # Users before what they use: a block goes where its users are by then.
    moves = [(block.name, INLINE) for block in reversed(blocks) if block.name in inlined]
    moves += zip(located, map(int, row), strict=True)
    for name, where in moves:
        if name in placed and where != ROOT:
            _move(placed[name], list(placed.values()), where)
    again = [
        placed[name].work / math.prod(placed[name].block.extents) if name in placed else 1.0
        for name in located
    ]
    whole = sum(math.prod(block.extents) for block in blocks)
    return [*again, sum(one.work for one in placed.values()) / whole]


def _move(one: _Placed, everyone: Sequence[_Placed], where: int) -> None:
    if len(one.block.writes) != 1:
        return
    buffer = one.block.writes[0].buffer
    users = [
        other
        for other in everyone
        if other is not one and any(read.buffer == buffer for read in other.block.reads)
    ]
    common = _common([user.loops for user in users]) if users else 0
    if not common:
        return
    depth = common - 1 if where == INLINE else min(where, common - 1)
    one.users = users
    needed = iter(one.needed(depth))
    outer = users[0].loops[: depth + 1]
    start = 1 + max(number for user in everyone for number, _ in user.loops)
    own = [
        (start + k, float(extent) if reduces else next(needed))
        for k, (extent, reduces) in enumerate(
            zip(one.block.extents, one.block.reduces, strict=True)
        )
    ]
    one.loops, one.shared = [*outer, *own], depth + 1


def _common(lists: Sequence[list[LoopRun]]) -> int:
    count = 0
    for several in zip(*lists, strict=False):
        if len({loop[0] for loop in several}) > 1:
            break
        count += 1
    return count
