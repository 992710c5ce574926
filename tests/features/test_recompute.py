"""Work that is done again, against a softmax and a root mean square counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tensorese.features.recompute import INLINE, ROOT, repeated
from tensorese.language.accesses import Block, Operand

pytestmark = pytest.mark.null

ROWS, COLUMNS = 8, 64
ROW, COLUMN = ("i", 0), ("i", 1)


def whole(buffer: int) -> Operand:
    return Operand(buffer, (ROWS, COLUMNS), (ROW, COLUMN), 4, False)


def each(buffer: int) -> Operand:
    return Operand(buffer, (ROWS,), (ROW,), 4, False)


X, BEST, EXP, SUM, Y = whole(0), each(1), whole(2), each(3), whole(4)
EXTENTS, PLAIN, SUMS = (ROWS, COLUMNS), (False, False), (False, True)
SOFTMAX = (
    Block("best", EXTENTS, SUMS, (X,), (BEST,)),
    Block("exp", EXTENTS, PLAIN, (X, BEST), (EXP,)),
    Block("sum", EXTENTS, SUMS, (EXP,), (SUM,)),
    Block("norm", EXTENTS, PLAIN, (EXP, SUM), (Y,)),
)
LOCATED = ("sum", "exp", "best")


def work(*where: int) -> list[float]:
    found: list[float] = repeated(SOFTMAX, (), LOCATED, np.array([where], dtype=float))[0].tolist()
    return found


def test_at_the_root_or_row_by_row_nothing_is_repeated() -> None:
    assert work(ROOT, ROOT, ROOT) == [1, 1, 1, 1]
    assert work(0, 0, 0) == [1, 1, 1, 1]


def test_a_sum_inside_the_loop_over_its_users_elements() -> None:
    # 64 sums a row instead of one: (1 + 1 + 64 + 1) / 4 of the work in all.
    assert work(1, ROOT, ROOT) == [64, 1, 1, 67 / 4]
    # exp is then wanted whole by each of those sums; its own loops hold a row each time.
    assert work(1, 1, ROOT) == [64, 64, 1, (64 + 64 + 1 + 1) / 4]


def test_inlined_work_is_done_by_whoever_uses_it() -> None:
    # No loop is common to sum and norm at the root, so exp stays where it is.
    assert work(ROOT, INLINE, ROOT) == [1, 1, 1, 1]
    # With sum in the rows of norm, the maximum can go there too, and is done once a row.
    assert work(0, ROOT, 0)[2] == 1


def test_blocks_that_the_trace_inlines_pass_their_loops_on() -> None:
    total = Operand(5, (ROWS,), (ROW,), 4, False)
    root = Operand(6, (ROWS,), (ROW,), 4, False)
    blocks = (
        Block("squares", EXTENTS, SUMS, (X,), (total,)),
        Block("root", (ROWS,), (False,), (total,), (root,)),
        Block("scale", EXTENTS, PLAIN, (X, root), (Y,)),
    )
    rows = np.array([[0.0], [1.0], [0.0]])
    found = repeated(blocks, ("root",), ("squares",), rows)
    assert found[:, 0].tolist() == [1, 64, 1]


def test_a_scalar_is_computed_for_each_of_its_users() -> None:
    scalar = Operand(7, (), (), 4, False)
    blocks = (
        Block("total", (COLUMNS,), (True,), (Operand(0, (COLUMNS,), (ROW,), 4, False),), (scalar,)),
        Block("scale", EXTENTS, PLAIN, (X, scalar), (Y,)),
    )
    found = repeated(blocks, (), ("total",), np.array([[-1.0], [0.0], [1.0]]))
    assert found[:, 0].tolist() == [1, ROWS, ROWS * COLUMNS]


def test_what_the_module_does_not_name_is_left_out() -> None:
    rows = np.array([[3.0, 1.0]])
    assert repeated(SOFTMAX, (), ("", "sum"), rows)[0, :2].tolist() == [1, 64]
