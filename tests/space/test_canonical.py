from __future__ import annotations

import json

import pytest

from tensorese.space.canonical import put_constants, take_constants

pytestmark = pytest.mark.null


def _body(parallel: int, threads: int) -> str:
    instructions = [
        ["Annotate", ["b0", parallel], ["meta_schedule.parallel"], []],
        ["Annotate", ["b0", "v1"], ["meta_schedule.unroll_explicit"], []],
        ["Annotate", ["b1", threads], ["meta_schedule.thread_extent_high_inclusive"], []],
        ["Annotate", ["b1", '"SSRSRS"'], ["meta_schedule.tiling_structure"], []],
    ]
    return json.dumps([instructions, []], separators=(",", ":"))


def test_one_sketch_on_two_platforms_is_one_sketch() -> None:
    small, here = take_constants(_body(32, 1024))
    large, there = take_constants(_body(256, 512))
    assert small == large
    assert here == {0: 32, 2: 1024}
    assert there == {0: 256, 2: 512}


def test_the_platforms_numbers_come_back() -> None:
    body, constants = take_constants(_body(32, 1024))
    assert json.loads(put_constants(body, constants)) == json.loads(_body(32, 1024))


def test_what_is_decided_or_structural_stays() -> None:
    body, _ = take_constants(_body(32, 1024))
    assert '"v1"' in body
    assert "SSRSRS" in body
