from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tensorese.language.ansor import (
    STEP_KINDS,
    join_steps,
    parse_steps,
    split_steps,
    write_steps,
)

pytestmark = pytest.mark.null

ONE_OF_EACH: list[list[Any]] = [
    ["CHW", 3, "local"],
    ["SP", 3, 0, 128, [1, 1, 8, 1], 1],
    ["RE", 3, [0, 2, 1, 3, 4]],
    ["FSP", 4, 0, 1, 3],
    ["CA", 3, 4, 11],
    ["CHR", 2, "shared", [3]],
    ["CI", 1],
    ["CR", 7],
    ["RF", 3, 2, 1],
    ["SA", 3, 2, 16, 0],
    ["FU", 4, [0, 1, 2, 3]],
    ["SP", 4, 0, 504, [4], 1],
    ["FFSP", 4, 0, [4, 3, 2, 1], 1, 1],
    ["AN", 4, 1, 6],
    ["PR", 5, 0, "auto_unroll_max_step$512"],
    ["PR", 5, 0, "debug_skip_region"],
]

leaves = st.one_of(st.integers(-(2**40), 2**40), st.text(max_size=6), st.booleans(), st.none())
params = st.lists(st.one_of(leaves, st.lists(leaves, max_size=4)), max_size=6)
kinds = st.one_of(st.sampled_from(STEP_KINDS), st.text(min_size=1, max_size=4))
odd_steps = st.builds(lambda kind, rest: [kind, *rest], kinds, params)
steps = st.lists(st.one_of(odd_steps, st.sampled_from(ONE_OF_EACH)), max_size=12)


def test_the_list_above_has_every_kind() -> None:
    assert {step[0] for step in ONE_OF_EACH} == set(STEP_KINDS)


def test_args_are_flat_names_and_numbers_in_record_order() -> None:
    sentence = parse_steps(ONE_OF_EACH)
    assert sentence[1].type == "SP"
    assert sentence[1].args == (3, 0, 128, 1, 1, 8, 1, 1)
    assert sentence[5].args == (2, "shared", 3)
    assert sentence[14].args == (5, 0, "auto_unroll_max_step", 512)
    assert sentence[15].args == (5, 0, "debug_skip_region")


def test_equal_shapes_share_one_form() -> None:
    first, second = parse_steps([["CA", 1, 2, 3], ["CA", 4, 5, 6]])
    assert first.form is second.form


@given(steps)
def test_writing_restores_any_steps(original: list[list[Any]]) -> None:
    written = write_steps(parse_steps(original))
    assert written == original
    assert repr(written) == repr(original)  # True and 1 are equal, but not the same JSON


@given(steps)
@example([["CA", None, 0, 0]])  # its own null is no hole
@example([["SP", 1, None, 8, [2], 1], ["PR", None, 0, "auto_unroll_max_step$16"]])
def test_joining_restores_any_steps(original: list[list[Any]]) -> None:
    joined = join_steps(*split_steps(original))
    assert repr(joined) == repr(original)


def test_decisions_are_tiles_unroll_places_and_fused_extents() -> None:
    body, slots, decisions = split_steps(ONE_OF_EACH)
    assert slots == ((1, 4), (4, -1), (11, -1), (11, 1), (14, -1))
    assert decisions == (1, 1, 8, 1, 11, 504, 4, 512)
    assert '["SP",3,0,128,null,1]' in body
    assert '["SP",4,0,null,null,1]' in body
    assert '["PR",5,0,null]' in body


def test_programs_that_differ_in_decisions_share_a_body() -> None:
    one = [["SP", 2, 0, 64, [2, 4], 1], ["FU", 2, [0, 1]], ["SP", 2, 0, 32, [8], 1]]
    two = [["SP", 2, 0, 64, [1, 16], 1], ["FU", 2, [0, 1]], ["SP", 2, 0, 4, [2], 1]]
    assert split_steps(one)[:2] == split_steps(two)[:2]


def test_joining_refuses_a_row_of_another_length() -> None:
    body, slots, decisions = split_steps(ONE_OF_EACH)
    with pytest.raises(ValueError, match="got 7 integers for 8 places"):
        join_steps(body, slots, decisions[:-1])
