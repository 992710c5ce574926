"""The rule of `CollectComputeLocation`, against a plain re-telling of it row by row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorese.arrays import Ints
from tensorese.space.locations import ConsumerLoop, LocationTable, LoopRule
from tensorese.space.memo import Asked

pytestmark = pytest.mark.null


def _told(extents: list[int], parallel: list[bool], inline: bool) -> list[int]:
    found = [-2] if inline else []
    found.append(-1)
    last = max((i for i, p in enumerate(parallel) if p), default=-1)
    reduced = False
    for index, extent in enumerate(extents):
        if extent == 1:
            continue
        if parallel[index]:
            if reduced:
                break
        else:
            reduced = True
            if index > last:
                break
        found.append(index)
    return found


@given(
    st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=9),
    st.booleans(),
)
def test_mask_follows_tvms_walk(loops: list[tuple[int, bool]], inline: bool) -> None:
    rule = LoopRule(
        loops=tuple(
            ConsumerLoop(columns=(k,), constant=1, parallel=parallel)
            for k, (_, parallel) in enumerate(loops)
        ),
        inline=inline,
    )
    row = np.array([[extent for extent, _ in loops]], dtype=np.int64)
    offered = (np.flatnonzero(rule.mask(row)[0]) - 2).tolist()
    assert offered == _told([e for e, _ in loops], [p for _, p in loops], inline)


def test_a_constant_loop_is_long_when_it_is() -> None:
    rule = LoopRule(
        loops=(
            ConsumerLoop(columns=(), constant=1, parallel=True),
            ConsumerLoop(columns=(), constant=7, parallel=True),
        ),
        inline=False,
    )
    mask = rule.mask(np.zeros((2, 0), dtype=np.int64))
    assert mask.tolist() == [[False, True, False, True]] * 2


def test_a_table_asks_once_per_case() -> None:
    questions: list[list[int]] = []

    def ask(row: Ints) -> tuple[int, ...]:
        questions.append(row.tolist())
        return (-1, 0) if row[0] > 1 else (-2,)

    table = LocationTable(asked=Asked(capped=(0,), columns=(1,), ask=ask), width=4)
    rows = np.array([[4, 0, 9], [8, 0, 9], [1, 0, 9], [4, 1, 9]], dtype=np.int64)
    mask = table.mask(rows)
    assert mask.tolist()[:3] == [[False, True, True, False]] * 2 + [[True, False, False, False]]
    assert len(questions) == 3
    table.mask(rows)
    assert len(questions) == 3
    assert table.mask(rows[:0]).shape == (0, 4)
