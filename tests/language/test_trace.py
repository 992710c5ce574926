from __future__ import annotations

import json
from pathlib import Path

import pytest

from tensorese.language.trace import read_trace
from tensorese.records.store import Store

pytestmark = pytest.mark.null

INSTRUCTIONS = [
    ["GetLoops", ["b0"], [], ["l1", "l2"]],
    ["SamplePerfectTile", ["l1"], [2, 64], ["v3", "v4"]],
    ["SampleCategorical", [], [[0, 16, 64], [0.25, 0.25, 0.5]], ["v5"]],
    ["CacheRead", ["b0", ["b6"]], [0, "shared"], ["b7"]],
    ["SampleComputeLocation", ["b0"], [], ["l8"]],
]
SLOTS = ((1, 2), (2, -1), (4, -1))
BODY = json.dumps([INSTRUCTIONS, [[1, None], [2, None], [4, None]]])


def test_decisions_are_dealt_to_instructions_in_the_order_of_a_row() -> None:
    columns = [one.columns for one in read_trace(BODY, SLOTS)]
    assert columns == [None, (0, 1), (2,), None, (3,)]
    assert [one.single for one in read_trace(BODY, SLOTS)] == [False, False, True, False, True]


def test_a_categorical_decision_tells_what_it_chooses_from() -> None:
    assert [one.choices for one in read_trace(BODY, SLOTS)] == [None, None, (0, 16, 64), None, None]
    assert read_trace(BODY)[2].choices is None  # decided already: nothing is chosen


def test_a_sketch_is_parsed_once_and_nothing_in_it_can_be_changed() -> None:
    trace = read_trace(BODY, SLOTS)
    assert read_trace(BODY, [list(slot) for slot in SLOTS]) is trace  # type: ignore[misc]
    assert trace[3].inputs == ("b0", ("b6",))
    assert hash(trace) == hash(read_trace(BODY, SLOTS))  # lists would not hash


def test_a_body_that_is_no_trace_is_refused() -> None:
    with pytest.raises(ValueError, match="unpack"):
        read_trace("[[1, 2, 3]]")


@pytest.mark.parametrize("store", ["cpu", "h200"])
def test_every_decision_of_a_published_sketch_has_its_instruction(store: str) -> None:
    folder = Path(__file__).resolve().parents[2] / "data" / store
    with Store.open(folder) as records:
        sketches = list(records.sketches().values())
    assert len(sketches) > 20
    for sketch in sketches:
        trace = read_trace(sketch.body, sketch.slots)
        open_ = [column for one in trace for column in one.columns or ()]
        assert open_ == list(range(sketch.n_decisions))
        assert all(one.kind.startswith("Sample") for one in trace if one.columns is not None)
        assert [list(one[:4]) for one in trace] == [
            [_tuples(part) for part in one] for one in json.loads(sketch.body)[0]
        ]


def _tuples(value: object) -> object:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
