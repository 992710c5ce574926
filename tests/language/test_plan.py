"""Traces as plans: what is tiled, in what order, what is computed where."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tensorese.language.plan import Factored, Located, Plan, Tiled, read_plan

pytestmark = pytest.mark.null

TILED: list[Any] = [
    ["GetSBlock", [], ["pad", "main"], ["b0"]],
    ["GetSBlock", [], ["matmul", "main"], ["b1"]],
    ["GetSBlock", [], ["root", "main"], ["b2"]],
    ["GetLoops", ["b1"], [], ["l3", "l4", "l5"]],
    ["SamplePerfectTile", ["l3"], [4, 64], ["v6", "v7", "v8", "v9"]],
    ["Split", ["l3", "v6", "v7", "v8", "v9"], [1, 0], ["l10", "l11", "l12", "l13"]],
    ["SamplePerfectTile", ["l4"], [4, 64], ["v14", "v15", "v16", "v17"]],
    ["Split", ["l4", "v14", "v15", "v16", "v17"], [1, 0], ["l18", "l19", "l20", "l21"]],
    ["SamplePerfectTile", ["l5"], [2, 64], ["v22", "v23"]],
    ["Split", ["l5", "v22", "v23"], [1, 0], ["l24", "l25"]],
    ["Reorder", ["l10", "l18", "l11", "l19", "l24", "l12", "l20", "l25", "l13", "l21"], [], []],
    ["CacheWrite", ["b1", []], [0, "global"], ["b26"]],
    ["ReverseComputeAt", ["b26", "l19"], [1, -1], []],
    ["Annotate", ["b2", 0], ["meta_schedule.parallel"], []],
    ["SampleCategorical", [], [[0, 16, 64, 512], [0.25] * 4], ["v27"]],
    ["Annotate", ["b2", "v27"], ["meta_schedule.unroll_explicit"], []],
    ["SampleComputeLocation", ["b0"], [], ["l28"]],
]
SLOTS = ((4, 4), (6, 4), (8, 2), (14, -1), (16, -1))
FACTORED: list[Any] = [
    ["GetSBlock", [], ["total", "main"], ["b0"]],
    ["GetLoops", ["b0"], [], ["l1", "l2"]],
    ["SamplePerfectTile", ["l2"], [2, 64], ["v3", "v4"]],
    ["Split", ["l2", "v3", "v4"], [1, 0], ["l5", "l6"]],
    ["RFactor", ["l6"], [1], ["b7"]],
]


def _plan(instructions: list[Any], slots: tuple[tuple[int, int], ...]) -> Plan:
    return read_plan("metaschedule", json.dumps([instructions, []]), slots)


def test_a_tiled_block() -> None:
    plan = _plan(TILED, SLOTS)
    assert plan.block == "matmul"
    assert plan.tiles == (Tiled(0, (0, 1, 2, 3)), Tiled(1, (4, 5, 6, 7)), Tiled(2, (8, 9)))
    assert plan.order[:5] == ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0))
    assert plan.order[-1] == (1, 3)
    assert plan.attached == 3  # inside the second tile of the second loop
    assert plan.cached and plan.parallel
    assert plan.unroll == 10
    assert plan.locations == (Located(11, "pad"),)
    assert plan.factored == ()


@pytest.mark.parametrize(("loop", "inner"), [("l6", True), ("l5", False)])
def test_a_factored_reduction_is_no_tile(loop: str, inner: bool) -> None:
    instructions = [*FACTORED[:-1], ["RFactor", [loop], [1], ["b7"]]]
    plan = _plan(instructions, ((2, 2),))
    assert plan.tiles == () and plan.factored == (Factored((0, 1), inner),)


def test_what_is_no_trace_has_no_plan() -> None:
    assert read_plan("ansor", "[]", ()) == Plan()
    assert read_plan("metaschedule", '[[["GetLoops", [], [], []]], []]', ()) == Plan()
