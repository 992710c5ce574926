"""Moves followed without TVM offer what TVM offers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from tensorese.space.locations import LocationTable
from tensorese.space.moves import Block, Iterator, Loops, Moves, Read
from tensorese.space.slots import INLINE, ROOT
from tensorese.space.space import task_space
from tensorese.tvm_env import import_tvm

LLVM = '{"kind":"llvm","num-cores":2}'


def _iterators(*loops: int, reduced: int = -1) -> tuple[Iterator, ...]:
    return tuple(Iterator(loops=frozenset({x}), extent=8, spatial=x != reduced) for x in loops)


def _rows_sums_scaled() -> Loops:
    """`square[i, k]` elementwise, `sum[i]` over k, `out[i, j]` reading both."""
    both = Read(buffer=0, axes=(frozenset({0}), frozenset({1})), wide=(False, False))
    one = Read(buffer=1, axes=(frozenset({0}),), wide=(False,))
    blocks = {
        "square": Block(
            loops=(0, 1),
            iterators=_iterators(0, 1),
            reads=(),
            buffer=0,
            places=(0, 1),
            inline=True,
        ),
        "sum": Block(
            loops=(2, 3),
            iterators=_iterators(2, 3, reduced=3),
            reads=(both,),
            buffer=1,
            places=(0,),
            inline=False,
        ),
        "out": Block(
            loops=(4, 5),
            iterators=_iterators(4, 5),
            reads=(both, one),
            buffer=2,
            places=(0, 1),
            inline=False,
        ),
    }
    return Loops(blocks=blocks, extents=[8] * 6)


@pytest.mark.null
def test_a_block_with_two_far_readers_stays_at_the_root() -> None:
    loops = _rows_sums_scaled()
    assert loops.offered("square") == (INLINE, ROOT)
    assert loops.offered("sum") == (ROOT, 0, 1)


@pytest.mark.null
def test_a_move_opens_the_loops_its_reader_now_shares() -> None:
    loops = _rows_sums_scaled()
    loops.move("sum", 0)
    assert loops.offered("square") == (INLINE, ROOT, 0)
    # Inside loop i the sum needs one row: its own loop over rows has shrunk to 1.
    moved = loops.blocks["sum"]
    assert [loops.extents[loop] for loop in moved.loops] == [8, 1, 8]


@pytest.mark.null
def test_a_reduction_is_entered_only_before_its_last_parallel_loop() -> None:
    loops = _rows_sums_scaled()
    loops.move("square", INLINE)
    assert "square" not in loops.blocks
    del loops.blocks["out"]
    loops.blocks["more"] = Block(
        loops=(0, 1), iterators=_iterators(0, 1), reads=(), buffer=0, places=(0, 1), inline=False
    )
    read = Read(buffer=0, axes=(frozenset({0}), frozenset({1})), wide=(False, False))
    loops.blocks["sum"] = Block(
        loops=(2, 3),
        iterators=_iterators(2, 3, reduced=3),
        reads=(read,),
        buffer=1,
        places=(0,),
        inline=False,
    )
    assert loops.offered("more") == (ROOT, 0)


def _module(name: str) -> Any:
    tvm = import_tvm("llvm")
    from tvm.s_tir.meta_schedule.testing import te_workload

    made = {
        "softmax": lambda: te_workload.softmax_mn(64, 48),
        "pool": lambda: te_workload.max_pool2d_nchw(1, 8, 14, 14, 1),
    }
    return tvm.IRModule({"main": tvm.te.create_prim_func(made[name]())})


@pytest.mark.tvm
@pytest.mark.parametrize("name", ["softmax", "pool"])
def test_tvm_offers_the_same(name: str) -> None:
    space = task_space(_module(name), LLVM)
    rng = np.random.default_rng(3)
    asked = 0
    for sketch, probe in zip(space.sketches, space.probes, strict=True):
        for slot in sketch.locations:
            locator = sketch.locators[slot.column]
            if not isinstance(locator, LocationTable):
                continue
            ask = locator.asked.ask
            assert isinstance(ask, partial)
            assert isinstance(ask.func.__self__, Moves), "TVM is asked instead"
            for row in sketch.draw(3, rng):
                assert ask(row) == probe.offered(slot, row)
                asked += 1
    assert asked >= 6
