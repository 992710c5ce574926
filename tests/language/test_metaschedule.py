from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorese.language.metaschedule import (
    cut_tail,
    join_trace,
    parse_trace,
    split_trace,
    write_trace,
)

pytestmark = pytest.mark.null


def small_trace(get_block: str, split_attributes: list[int]) -> list[Any]:
    return [
        [
            [get_block, [], ["C", "main"], ["b0"]],
            ["Annotate", ["b0", '"SSRSRS"'], ["meta_schedule.tiling_structure"], []],
            ["GetLoops", ["b0"], [], ["l1", "l2"]],
            ["SamplePerfectTile", ["l1"], [2, 64], ["v3", "v4"]],
            ["Split", ["l1", "v3", "v4"], split_attributes, ["l5", "l6"]],
            ["CacheRead", ["b0", ["b0"]], [0, "shared"], ["b7"]],
            ["SampleComputeLocation", ["b7"], [], ["l8"]],
            ["ComputeAt", ["b7", "l8"], [1, -1], []],
            ["SampleCategorical", [], [[0, 16, 64], [0.25, 0.5, 0.25]], ["v9"]],
            ["Annotate", ["b0", "v9"], ["meta_schedule.unroll_explicit"], []],
            ["EnterPostproc", [], [], []],
            ["Split", ["l6", "None", 56], split_attributes, ["l10", "l11"]],
        ],
        [[3, [8, 16]], [6, -1], [8, 2]],
    ]


OLD = small_trace("GetBlock", [1])
NEW = small_trace("GetSBlock", [1, 0])


def test_variables_become_what_was_decided() -> None:
    sentence = parse_trace(NEW)
    by_type = {p.type: p.args for p in sentence}
    assert by_type["SamplePerfectTile"] == (0, 2, 64, 8, 16)
    assert by_type["Split"] == (0, 8, 16, 1, 0, 2, 3)
    assert by_type["SampleCategorical"] == (0, 16, 64, 0.25, 0.5, 0.25, 2)
    assert sentence[-1].args == (0, 64, "meta_schedule.unroll_explicit")
    assert sentence[1].args == (0, "SSRSRS", "meta_schedule.tiling_structure")


def test_old_and_new_spelling_read_as_one_sentence() -> None:
    old, new = parse_trace(OLD), parse_trace(NEW)
    assert [(p.type, p.args) for p in old] == [(p.type, p.args) for p in new]
    assert old[0].form.kind == "GetBlock"


@pytest.mark.parametrize("trace", [OLD, NEW], ids=["old", "0.27"])
def test_writing_and_joining_restore_the_original(trace: list[Any]) -> None:
    _, tail = cut_tail(trace)
    assert write_trace(parse_trace(trace), tail) == trace
    assert join_trace(*split_trace(trace)) == trace


def test_the_tail_is_kept_aside() -> None:
    body, slots, decisions, tail = split_trace(NEW)
    assert "EnterPostproc" in tail
    assert "EnterPostproc" not in body
    assert slots == ((3, 2), (6, -1), (8, -1))
    assert decisions == (8, 16, -1, 2)
    assert join_trace(body, slots, decisions)[0] == NEW[0][:10]


def test_a_trace_that_was_never_postprocessed_has_no_tail() -> None:
    head, tail = cut_tail([NEW[0][:10], NEW[1]])
    assert tail == ""
    assert write_trace(parse_trace(head)) == head


def test_a_decision_that_is_no_integer_stays_in_the_body() -> None:
    trace = [[["SampleOdd", [], [], ["v0"]], ["Use", ["v0"], [], []]], [[0, {"a": None}]]]
    body, slots, decisions, tail = split_trace(trace)
    assert slots == () and decisions == ()
    assert join_trace(body, slots, decisions, tail) == trace


names = st.text(alphabet='abl"v019', max_size=4)
leaves = st.one_of(names, st.integers(-99, 99), st.booleans(), st.none())
nested = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
row = st.lists(nested, max_size=4)
instruction = st.builds(
    lambda *parts: list(parts),
    st.sampled_from(["GetBlock", "GetSBlock", "Split", "SampleCategorical", "Future"]),
    row,
    row,
    st.lists(st.from_regex(r"[blv][0-9]{1,2}", fullmatch=True), max_size=3),
)


@given(st.lists(instruction, max_size=8), st.data())
def test_any_trace_survives(instructions: list[list[Any]], data: st.DataObject) -> None:
    indices = data.draw(st.sets(st.integers(0, 7))) & set(range(len(instructions)))
    value = st.one_of(st.integers(-3, 9), st.lists(st.integers(1, 64), max_size=4))
    trace = [instructions, [[index, data.draw(value)] for index in sorted(indices)]]
    assert repr(write_trace(parse_trace(trace))) == repr(trace)
    assert repr(join_trace(*split_trace(trace))) == repr(trace)
