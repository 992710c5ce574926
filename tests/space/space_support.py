"""A workload with next to nothing to decide, and a space small enough to enumerate."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorese.language.sentence import CHOICE, FIELDS, LOCATION, TILE, Grammar, Hole
from tensorese.records.nouns import Sketch
from tensorese.space.decisions import DecisionSpace
from tensorese.space.limits import Dimension, Product, SharedMemory, StagedBuffer
from tensorese.space.locations import ConsumerLoop, LoopRule
from tensorese.space.slots import Choice, Location, Tile
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm


def copy_module() -> Any:
    tvm = import_tvm()
    x = tvm.te.placeholder((4,), name="x")
    y = tvm.te.compute((4,), lambda i: x[i] + 1.0, name="y")
    return tvm.IRModule({"main": tvm.te.create_prim_func([x, y])})


def small_space(*, limited: bool = False) -> DecisionSpace:
    """Made by hand: tiles of 8 and 6 (spatial) and 4 (reduction), a choice, a location.

    The consumer's loops run spatial, reduction, spatial, as in TVM's CPU tiling.
    """
    slots = (
        Tile(column=0, extent=8, parts=3, limit=4),
        Tile(column=3, extent=6, parts=2, limit=-1),
        Tile(column=5, extent=4, parts=2, limit=-1),
        Choice(column=7, options=(0, 16, 64), purpose="meta_schedule.unroll_explicit"),
        Location(column=8, instruction=9),
    )
    order = [(0, True), (3, True), (1, True), (5, False), (4, True), (6, False), (2, True)]
    loops = tuple(ConsumerLoop(columns=(c,), constant=1, parallel=p) for c, p in order)
    staged = StagedBuffer(
        dimensions=(
            Dimension(terms=((2, (1, 2)), (1, (5, 6))), cap=17),
            Dimension(terms=((1, (4,)),), cap=6),
        ),
        element_bytes=4,
    )
    limits = (
        Product(columns=(1, 4), low=2, high=8),
        SharedMemory(buffers=(staged,), limit=150),
    )
    return DecisionSpace(
        sketch=Sketch(dialect="metaschedule", body="[]", slots=()),
        slots=slots,
        locators={8: LoopRule(loops=loops, inline=True)},
        limits=limits if limited else (),
    )


def grammar_for(space: DecisionSpace) -> Grammar:
    """Of a space made by hand, without a prompt."""
    holes = []
    for slot in space.slots:
        if isinstance(slot, Tile):
            holes.append(Hole(TILE, slot.column, slot.parts, slot.extent, slot.limit))
        elif isinstance(slot, Choice):
            holes.append(Hole(CHOICE, slot.column, 1, len(slot.options)))
        else:
            holes.append(Hole(LOCATION, slot.column, 1, 0))
    return Grammar(words=np.zeros((0, len(FIELDS)), np.int16), holes=tuple(holes))


def every_row(space: DecisionSpace) -> npt.NDArray[np.int64]:
    """All integers the columns could hold, legal or not: what brute force compares with."""
    tables = [
        np.arange(-2, 7)[:, None] if isinstance(slot, Location) else slot.table
        for slot in space.slots
    ]
    rows = [np.concatenate(parts) for parts in itertools.product(*tables)]
    return np.array(rows, dtype=np.int64)


def cuda_target() -> Target:
    return Target.from_json(
        '{"arch":"sm_90","kind":"cuda","max_num_threads":1024,"max_shared_memory_per_block":49152,'
        '"max_threads_per_block":1024,"registers_per_block":65536,"thread_warp_size":32}'
    )


def matmul_module() -> Any:
    return _made("matmul", 64, 96, 128)


def conv2d_module() -> Any:
    return _made("conv2d_nhwc", 1, 14, 14, 16, 32, 3, 2, 1)


def softmax_module() -> Any:
    return _made("softmax_mn", 64, 48)


def _made(name: str, *sizes: int) -> Any:
    tvm = import_tvm()
    from tvm.s_tir.meta_schedule.testing import te_workload

    func = tvm.te.create_prim_func(getattr(te_workload, name)(*sizes))
    return tvm.IRModule({"main": func})
