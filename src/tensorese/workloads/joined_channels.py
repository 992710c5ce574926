"""The kernel that copies channels of several tensors into one; it has one schedule.

    out[p, to + i * every] = source[p, begin + i]      for every pixel p and every run

As TVM writes a concatenation, each element asks which tensor it comes from.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tensorese.tvm_env import import_tvm

NAME = "joined_channels"
MARK = "tensorese.joined"
"""Attribute of the function."""
_WORTH_A_THREAD = 1 << 14  # elements: below, waking another core costs more


@dataclass(frozen=True, kw_only=True)
class Run:
    source: int
    begin: int
    to: int
    every: int
    """The distance of two neighbours in the result."""
    length: int


def runs(sources: Sequence[int], numbers: Sequence[int]) -> list[Run]:
    """Neighbours of a source that are equally far apart in the result belong together."""
    entries = sorted((s, n, at) for at, (s, n) in enumerate(zip(sources, numbers, strict=True)))
    found: list[Run] = []
    for source, number, at in entries:
        last = found[-1] if found else None
        if last and last.source == source and last.begin + last.length == number:
            every = at - last.to if last.length == 1 else last.every
            if every > 0 and last.to + last.length * every == at:
                length = last.length + 1
                found[-1] = Run(
                    source=source, begin=last.begin, to=last.to, every=every, length=length
                )
                continue
        found.append(Run(source=source, begin=number, to=at, every=1, length=1))
    return found


def join(builder: Any, sources: Sequence[Any], numbers: Sequence[int]) -> Any:
    """The call; sources are NHWC tensors of one size."""
    relax = import_tvm().relax
    tensors = list(dict.fromkeys(sources))
    shapes = [[int(extent) for extent in one.ty.shape] for one in tensors]
    dtype, out = str(tensors[0].ty.dtype), [*shapes[0][:3], len(numbers)]
    function = _function(shapes, out, dtype, runs([*map(tensors.index, sources)], numbers))
    kernel = builder.add_func(function, NAME)
    return relax.call_tir(kernel, tensors, relax.TensorType(out, dtype))


def is_join(module: Any) -> bool:
    return MARK in (module["main"].attrs or {})


def _function(
    shapes: Sequence[Sequence[int]], out: Sequence[int], dtype: str, parts: Sequence[Run]
) -> Any:
    tvm = import_tvm()
    tirx = tvm.tirx
    stmt: Any = importlib.import_module("tvm.tirx.stmt")
    kinds = stmt.ForKind
    buffers = [tirx.decl_buffer(shape, dtype, f"part{at}") for at, shape in enumerate(shapes)]
    result = tirx.decl_buffer(out, dtype, "joined")
    _, height, width, channels = out
    pixel = tirx.Var("pixel", "int32")
    row = [pixel // (height * width), pixel // width % height, pixel % width]

    def copied(together: Sequence[Run]) -> Any:
        """Runs that lie between each other's elements in one loop: LLVM then shuffles vectors,
        where a run alone would be scattered."""
        at = tirx.Var("channel", "int32")
        stores = [
            stmt.BufferStore(
                result,
                buffers[run.source][(*row, at + run.begin)],
                [*row, at * run.every + run.to],
            )
            for run in together
        ]
        body = stores[0] if len(stores) == 1 else stmt.SeqStmt(stores)
        return stmt.For(at, tirx.const(0), tirx.const(together[0].length), kinds.SERIAL, body)

    meshed: dict[tuple[int, ...], list[Run]] = {}
    for at, run in enumerate(parts):
        key = (at,) if run.every == 1 else (-1, run.every, run.length, run.to // run.every)
        meshed.setdefault(key, []).append(run)
    copies = [copied(sorted(together, key=lambda run: run.to)) for together in meshed.values()]
    body = copies[0] if len(copies) == 1 else stmt.SeqStmt(copies)
    pixels = math.prod(out[:3])
    kind = kinds.PARALLEL if pixels * channels >= _WORTH_A_THREAD else kinds.SERIAL
    loop = stmt.For(pixel, tirx.const(0), tirx.const(pixels), kind, body)
    block = tvm.s_tir.SBlock([], [], [], "root", loop)  # TVM's passes ask for one
    root = tvm.s_tir.SBlockRealize([], True, block)
    function = tirx.PrimFunc([*buffers, result], root)
    return function.with_attr({"tirx.noalias": True, MARK: True})
