"""Moves followed without TVM offer what TVM offers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorese.space.block_moves import (
    Iterator,
    Loops,
    MovedRule,
    Moves,
    NestBlock,
    Read,
    Source,
    Untold,
)
from tensorese.space.counting import count
from tensorese.space.slots import INLINE, ROOT
from tensorese.space.space import task_space
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm

LLVM = Target.from_json('{"kind":"llvm","num-cores":2}')


def _iterators(*loops: int, reduced: int = -1) -> tuple[Iterator, ...]:
    return tuple(
        Iterator(loops=frozenset({x}), whole=frozenset({x}), spatial=x != reduced) for x in loops
    )


BOTH = Read(buffer=0, axes=(frozenset({0}), frozenset({1})), wide=(False, False))
ONE = Read(buffer=1, axes=(frozenset({0}),), wide=(False,))


def _blocks() -> dict[str, NestBlock]:
    """`square[i, k]` elementwise, `sum[i]` over k, `out[i, j]` reading both."""
    square = NestBlock(
        loops=(0, 1), iterators=_iterators(0, 1), reads=(), buffer=0, places=(0, 1), inline=True
    )
    summed = NestBlock(
        loops=(2, 3),
        iterators=_iterators(2, 3, reduced=3),
        reads=(BOTH,),
        buffer=1,
        places=(0,),
        inline=False,
    )
    out = NestBlock(
        loops=(4, 5),
        iterators=_iterators(4, 5),
        reads=(BOTH, ONE),
        buffer=2,
        places=(0, 1),
        inline=False,
    )
    return {"square": square, "sum": summed, "out": out}


def _loops() -> Loops:
    return Loops(blocks=_blocks(), long=[np.ones(1, dtype=np.bool_)] * 6)


def _offered(loops: Loops, name: str) -> list[int]:
    found: list[int] = (np.flatnonzero(loops.offered(name, 12)[0]) + INLINE).tolist()
    return found


@pytest.mark.null
def test_a_block_with_two_far_readers_stays_at_the_root() -> None:
    loops = _loops()
    assert _offered(loops, "square") == [INLINE, ROOT]
    assert _offered(loops, "sum") == [ROOT, 0, 1]


@pytest.mark.null
def test_a_move_opens_the_loops_its_reader_now_shares() -> None:
    loops = _loops()
    loops.move("sum", 0)
    assert _offered(loops, "square") == [INLINE, ROOT, 0]
    # Inside loop i the sum needs one row: its own loop over rows has shrunk to 1.
    assert [bool(loops.long[loop][0]) for loop in loops.blocks["sum"].loops] == [True, False, True]


@pytest.mark.null
def test_an_inlined_block_hands_its_reads_on() -> None:
    loops = _loops()
    loops.blocks["square"] = NestBlock(
        loops=(0, 1),
        iterators=_iterators(0, 1),
        reads=(Read(buffer=9, axes=(frozenset({1}), frozenset({0})), wide=(False, False)),),
        buffer=0,
        places=(0, 1),
        inline=True,
    )
    loops.move("square", INLINE)
    assert "square" not in loops.blocks
    (read,) = loops.blocks["sum"].reads
    assert read.buffer == 9
    assert read.axes == (frozenset({1}), frozenset({0}))  # transposed, as `square` read it


@pytest.mark.null
def test_trailing_reductions_are_not_entered() -> None:
    loops = _loops()
    del loops.blocks["out"]
    assert _offered(loops, "square") == [INLINE, ROOT, 0]


@pytest.mark.null
def test_rows_differ_by_which_tiles_are_longer_than_one() -> None:
    sources: list[Source | None] = [Source(constant=8)] * 4
    sources += [Source(columns=(0,)), Source(columns=(1,))]
    moves = Moves(blocks=_blocks(), sources=sources, moved=[(2, "sum"), (3, "square")])
    rows = np.array([[8, 8, 0, 0], [1, 8, 0, 0], [8, 1, 1, 0]], dtype=np.int64)
    assert moves.mask(2, rows, 4).tolist() == [
        [False, True, True, True],
        [False, True, False, True],
        [False, True, True, False],
    ]


@pytest.mark.null
def test_an_unknown_loop_around_a_reader_is_told() -> None:
    sources: list[Source | None] = [Source(constant=8)] * 5 + [None]
    moves = Moves(blocks=_blocks(), sources=sources, moved=[(2, "sum")])
    with pytest.raises(Untold, match="must follow from the tiles"):
        moves.check()


def _module(name: str) -> Any:
    tvm = import_tvm("llvm")
    from tvm import topi
    from tvm.s_tir.meta_schedule.testing import te_workload

    def upsampled() -> list[Any]:
        x = tvm.te.placeholder((1, 8, 6, 6), name="x")
        w = tvm.te.placeholder((8, 4, 4, 4), name="w")
        y = topi.nn.conv2d_transpose_nchw(x, w, (2, 2), (1, 1), "float32", (0, 0))
        return [x, w, y]

    def heads() -> list[Any]:
        """As Relax writes it: four dimensions, counted in int64."""
        shape = [tvm.tirx.IntImm("int64", extent) for extent in (1, 2, 8, 8)]
        x = tvm.te.placeholder(shape, name="x")
        return [x, topi.nn.softmax(x)]

    made = {
        "softmax": lambda: te_workload.softmax_mn(64, 48),
        "heads": heads,
        "upsampled": upsampled,
    }
    return tvm.IRModule({"main": tvm.te.create_prim_func(made[name]())})


@pytest.mark.tvm
@pytest.mark.parametrize("name", ["softmax", "heads", "upsampled"])
def test_tvm_offers_the_same(name: str) -> None:
    space = task_space(_module(name), LLVM)
    rng = np.random.default_rng(3)
    asked = 0
    for sketch, probe in zip(space.sketches, space.probes, strict=True):
        assert sketch.covered
        for slot in sketch.locations:
            locator = sketch.locators[slot.column]
            if not isinstance(locator, MovedRule):
                continue
            rows = sketch.draw(3, rng)
            for row, mask in zip(rows, locator.mask(rows), strict=True):
                assert tuple(np.flatnonzero(mask) + INLINE) == probe.offered(slot, row)
                asked += 1
        assert count(sketch) > 0
    assert asked >= 6
