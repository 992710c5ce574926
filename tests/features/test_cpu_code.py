"""The core loop of hand-made programs; `benchmarks/code_rules.py` compares it with real code."""

from __future__ import annotations

import numpy as np
import pytest
from test_cpu import MATMUL, PAD, ROW, _named

from tensorese.features.cpu_code import pieces, spread
from tensorese.language.accesses import Operand, box, touched

pytestmark = pytest.mark.null


def _changed(**parts: float) -> dict[str, float]:
    """ROW with some of its numbers changed: y for rows, x for columns, r for terms."""
    names = ("y0", "y1", "y2", "y3", "x0", "x1", "x2", "x3", "r0", "r1", "limit", "at")
    row = dict(zip(names, map(float, ROW), strict=True)) | parts
    return _named([*row.values()], (PAD, MATMUL))


def test_unrolled_up_to_the_limit() -> None:
    got = _changed()
    # Four rows, eight terms and two of the outer columns are 64 steps; the rows around are left.
    assert (2 ** got["core_steps"], 2 ** got["core_summed"]) == (64, 8)
    assert (2 ** got["core_length"], got["core_sums"], got["core_minor"]) == (2, 0, 0)
    assert 2 ** got["core_inside"] == 64
    assert 2 ** got["core_results"] == 4 * 64 / 16
    assert (2 ** got["core_first_reads"], 2 ** got["core_second_reads"]) == (4 * 8, 8 * 64 / 16)
    assert 2 ** got["core_out_stride"] - 0.25 == pytest.approx(4 * 128)
    assert 2 ** got["core_first_stride"] - 0.25 == pytest.approx(4 * 32)
    assert got["core_second_stride"] == -2  # the weights stay
    # Results in and out, rows of x, and more weights than registers: for 64 steps of two vectors.
    assert 2 ** got["core_moved"] == pytest.approx((2 * 16 + 32 + 32) / 128)
    assert 2 ** got["core_instructions"] == pytest.approx((128 + 96) / (64 * 32))
    assert (2 ** got["core_around"], got["core_around_sums"]) == (4, 4)


def test_llvm_unrolls_what_is_short_and_a_sum_stays_in_registers() -> None:
    got = _changed(limit=0)
    assert (2 ** got["core_steps"], 2 ** got["core_length"], got["core_sums"]) == (4, 8, 4)
    assert 2 ** got["core_results"] == 8
    assert 2 ** got["core_moved"] == pytest.approx((4 + 2) / 8)
    many = _changed(limit=0, y2=1, y3=16)  # 32 results do not fit
    assert 2 ** many["core_results"] == 32
    assert 2 ** many["core_moved"] == pytest.approx((16 + 2 + 2 * 32) / 32)


def test_a_vector_of_the_core() -> None:
    got = _changed(limit=0, x2=64, x3=1, r0=32, r1=1)
    assert got["lanes"] == 0 and got["core_minor"] == 4 and 2 ** got["core_lanes"] == 16
    assert 2 ** got["core_out_stride"] - 0.25 == pytest.approx(1)
    odd = _changed(limit=0, x0=1, x2=28, x3=1, r0=32, r1=1)
    assert 2 ** odd["core_lanes"] == 4  # what divides 28
    sums = _changed(limit=0, x2=64, x3=1)
    assert sums["core_sums"] == 4 and sums["core_lanes"] == 0  # sums are not reordered


def test_a_vector_of_the_body() -> None:
    got = _changed(limit=0, x0=32, x2=4, x3=1, r0=32, r1=1)
    assert 2 ** got["core_inside"] == 4 and 2 ** got["core_lanes"] == 4
    two = _changed(limit=0, x0=64, x2=2, x3=1, r0=32, r1=1)
    assert 2 ** two["core_lanes"] == pytest.approx(1.5)


def test_lanes_of_several_groups_are_gathered() -> None:
    grouped = Operand(1, (64, 16), (("i", 0), ("/", ("i", 1), ("c", 8))), 4, False)
    assert spread(grouped, 1, np.array([8.0, 4.0, 12.0, 32.0])).tolist() == [1, 1, 12, 16]
    assert spread(grouped, 0, np.array([32.0])).tolist() == [1]


def test_a_window_of_steps_leaves_gaps() -> None:
    index = ("+", ("*", ("i", 0), ("c", 2)), ("i", 1))
    window = Operand(1, (64,), (index,), 4, False)
    lengths = np.array([[4.0, 1.0], [4.0, 3.0]])
    assert box(window, lengths)[:, 0].tolist() == [7, 9]
    assert touched(window, lengths)[:, 0].tolist() == [4, 9]
    unknown = window._replace(indices=(("?",),))
    assert touched(unknown, lengths)[:, 0].tolist() == [64, 64]


def test_odd_vectors_go_in_pieces() -> None:
    assert pieces(np.array([16.0, 28.0, 3.0, 1.0])).tolist() == [1, 3, 2, 1]
