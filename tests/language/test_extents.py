from __future__ import annotations

import json
from typing import Any

import pytest

from tensorese.language import split_steps, split_trace
from tensorese.language.extents import implied_extents

pytestmark = pytest.mark.null


def _values(dialect: str, body: str, slots: Any, values: Any) -> list[float | None]:
    """Extents with the given decision values put in."""
    out: list[float | None] = []
    for form in implied_extents(dialect, body, slots):
        if form is None:
            out.append(None)
            continue
        extent = 2**form.constant
        for decision, power in form.terms.items():
            extent *= values[decision] ** power
        out.append(round(extent, 6))
    return out


def _steps(*steps: list[Any]) -> list[float | None]:
    return _values("ansor", *split_steps(steps))


def test_split_implies_its_outer_part() -> None:
    assert _steps(["SP", 1, 0, 96, [4, 3], 1]) == [8.0]


def test_follow_split_takes_its_source_lengths() -> None:
    found = _steps(
        ["SP", 1, 0, 96, [4, 3, 2], 1],
        ["FSP", 2, 0, 0, 2],
        ["AN", 2, 0, 5],
        ["AN", 2, 1, 4],
        ["AN", 2, 2, 6],
    )
    assert found[2:] == [4.0, 4.0, 6.0]


def test_fused_follow_split_is_the_thread_count() -> None:
    found = _steps(
        ["SP", 1, 0, 64, [2, 8], 1],
        ["SP", 1, 3, 32, [1, 4], 1],
        ["FU", 3, [0, 1]],
        ["SP", 3, 0, 512, [2], 1],
        ["FFSP", 3, 0, [0, 1], 1, 1],
        ["AN", 3, 1, 6],
        ["AN", 3, 0, 0],
    )
    assert found[5:] == [32.0, 8.0]  # 8*4 threads; 512/2/32 left


def test_caches_move_the_stages_behind_them() -> None:
    found = _steps(
        ["SP", 2, 0, 64, [8], 1],
        ["CHR", 0, "shared", [2]],  # stage 2 becomes 3
        ["AN", 3, 1, 6],
        ["CHW", 3, "local"],  # and 4
        ["AN", 4, 1, 6],
        ["AN", 3, 0, 6],
    )
    assert found[2] == 8.0 and found[4] == 8.0 and found[5] is None


def test_reordering_and_unknown_axes() -> None:
    found = _steps(
        ["SP", 1, 1, 64, [8], 1],
        ["RE", 1, [2, 0, 1]],
        ["AN", 1, 0, 6],
        ["AN", 1, 1, 6],
    )
    assert found[2:] == [8.0, None]


def test_a_strange_step_implies_nothing() -> None:
    assert _steps(["SP", 1], ["ZAP", 3], ["FSP", 1, 0, 99, 2], ["FU", 1, []]) == [None] * 4


def test_trace_follows_variables() -> None:
    trace = [
        [
            ["SamplePerfectTile", ["l0"], [3, 64], ["v1", "v2", "v3"]],
            ["Split", ["l0", "v1", "v2", "v3"], [1], ["l4", "l5", "l6"]],
            ["Fuse", ["l4", "l5"], [1], ["l7"]],
            ["Bind", ["l7"], ["blockIdx.x"], []],
            ["Split", ["l7", "None", 2], [1], ["l8", "l9"]],
            ["Vectorize", ["l9"], [], []],
            ["Bind", ["l99"], ["threadIdx.x"], []],
        ],
        [[0, [4, 6, 5]]],
    ]
    body, slots, decisions, _ = split_trace(json.loads(json.dumps(trace)))
    found = _values("metaschedule", body, slots, decisions)
    assert found == [120.0, 4.0, None, 24.0, 12.0, 2.0, None]
