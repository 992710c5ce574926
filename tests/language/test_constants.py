from __future__ import annotations

import json

import pytest

from tensorese.errors import TargetError
from tensorese.language.constants import (
    complete,
    constants_for,
    is_canonical,
    put_constants,
    take_constants,
)

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


LLVM = '{"kind":"llvm","num-cores":4}'


def test_a_canonical_body_is_completed_for_a_target() -> None:
    body, _ = take_constants(_body(32, 1024))
    cuda = '{"kind":"cuda","max_threads_per_block":512,"num-cores":4,"thread_warp_size":32}'
    assert is_canonical(body)
    assert constants_for(body, cuda) == {0: 64, 2: 512}
    assert complete(body, cuda) == _body(64, 512)


def test_a_body_with_numbers_stays_as_it_is() -> None:
    assert not is_canonical(_body(32, 1024))
    assert complete(_body(32, 1024), LLVM) == _body(32, 1024)


def test_a_target_that_does_not_tell_is_named() -> None:
    body, _ = take_constants(_body(32, 1024))
    with pytest.raises(TargetError, match="must tell 'max_threads_per_block'"):
        complete(body, LLVM)
