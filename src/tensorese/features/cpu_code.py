"""The loop that a CPU program's machine code spends its time in, as TVM and LLVM leave it.

TVM unrolls innermost loops while their steps stay under the program's limit, and LLVM unrolls what
is short after that; the first loop left is the *core*. If it sums, its results wait in registers,
as far as they fit; if it walks along the results, they are loaded and stored with every step. To a
program without a vector of its own LLVM gives one: of the core, if its steps are neighbours, or of
neighbours in the unrolled body. The rules were read off the assembly of 4,000 programs. Shape
legend: n programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Floats64
from tensorese.features.scale import SHARE, log2
from tensorese.language.accesses import Index, Operand, coefficient, iterators, touched

Mask: TypeAlias = npt.NDArray[np.bool_]

LANES, REGISTERS = 16, 32
STEPS = 24
"""What LLVM still unrolls: 300 instructions, a dozen a step."""
RESULTS = REGISTERS - 4
"""Registers that are left for results beside what is multiplied."""
LEAST_JOINED = 4
"""Neighbours in an unrolled body that LLVM makes a vector of."""
OPERANDS = ("out", "first", "second")

NAMES: tuple[str, ...] = (
    *("core_length", "core_sums", "core_minor", "core_steps", "core_summed", "core_inside"),
    *("core_around", "core_around_sums", "core_lanes", "core_results", "core_held", "core_moved"),
    *("core_instructions", "core_cost"),
    *(f"core_{name}_stride" for name in OPERANDS),
    *(f"core_{name}_reads" for name in OPERANDS[1:]),
    *(f"{name}_spread" for name in OPERANDS[1:]),
)


class CodeLoop(NamedTuple):
    axis: int
    length: Floats64
    """`[n]`"""
    apart: Floats64
    """`[n]`: iterations of its axis from one step to the next."""
    sums: bool


class Core(NamedTuple):
    """The innermost loop that is left, one for each program; of length 1 where none is."""

    axis: npt.NDArray[np.int64]
    length: Floats64
    apart: Floats64
    sums: Mask
    around: Floats64
    """Length of the next loop."""
    around_sums: Mask
    steps: Floats64
    """Unrolled steps inside, vectors counting as one."""
    summed: Floats64
    """Those of them that add to the same result."""
    inside: Floats64
    """`[n, axes]`: iterations of each axis in one step of the core."""


def pieces(lanes: Floats64) -> Floats64:
    """Vector instructions for so many lanes: full ones, then a power of two at a time."""
    rest = (lanes % LANES).astype(np.int64)
    return np.asarray(lanes // LANES + sum((rest >> bit) & 1 for bit in range(4)))


def find_core(loops: Sequence[CodeLoop], vector: Floats64, limit: Floats64) -> Core:
    """`loops` run from inside out, without the vector, whose iterations are `[n, axes]`."""
    n = len(vector)
    inside, most = vector.copy(), np.maximum(limit, STEPS)
    steps, summed, length, apart, around = (np.ones(n) for _ in range(5))
    axis = np.full(n, -1)
    sums, around_sums, has_core, closed = (np.zeros(n, dtype=bool) for _ in range(4))
    for loop in loops:
        real = loop.length > 1
        after = real & has_core & ~closed
        unrolled = real & ~has_core & (steps * loop.length <= most)
        core = real & ~has_core & ~unrolled
        around = np.where(after, loop.length, around)
        around_sums = np.where(after, loop.sums, around_sums)
        taken = np.where(unrolled, loop.length, 1.0)
        steps = steps * taken
        summed = summed * taken if loop.sums else summed
        inside[:, loop.axis] *= taken
        axis, sums = np.where(core, loop.axis, axis), np.where(core, loop.sums, sums)
        length, apart = np.where(core, loop.length, length), np.where(core, loop.apart, apart)
        has_core, closed = has_core | core, closed | after
    return Core(axis, length, apart, sums, around, around_sums, steps, summed, inside)


def stride(operand: Operand, core: Core) -> Floats64:
    """`[n]`: elements from what one step of the core touches to what the next does."""
    if operand.free:  # laid out as the loops run
        used = list(frozenset().union(*map(iterators, operand.indices)))
        return np.where(np.isin(core.axis, used), touched(operand, core.inside).prod(1), 0.0)
    distance = np.zeros(len(core.axis))
    for axis in np.unique(core.axis[core.axis >= 0]):
        apart, behind = 0.0, 1.0
        for index, size in zip(reversed(operand.indices), reversed(operand.shape), strict=True):
            apart += abs(coefficient(index, int(axis))) * behind
            behind *= size
        distance[core.axis == axis] = apart
    return distance * core.apart


def spread(operand: Operand, minor: int, lanes: Floats64) -> Floats64:
    """`[n]`: loads for one vector where its lanes are of several groups; else 1."""
    loads = np.ones(len(lanes))
    for index in operand.indices:
        for group in _divisors(index, minor):
            loads = np.where(group % lanes == 0, loads, np.minimum(lanes, LANES))
    return loads


def _divisors(index: Index, iterator: int) -> Iterator[int]:
    """Constants by which an index divides the iterator."""
    kind, *parts = index
    if kind == "/" and parts[1][0] == "c" and iterator in iterators(parts[0]):
        yield parts[1][1]
    for part in parts:
        if isinstance(part, tuple):
            yield from _divisors(part, iterator)


def code(
    operands: Sequence[Operand], core: Core, lanes: Floats64, minor: int
) -> Iterator[tuple[str, Floats64]]:
    """The core's features: `operands` are the results, then what is multiplied."""
    yield from _shape(core, minor)
    strides = [stride(operand, core) for operand in operands]
    for name, step in zip(OPERANDS, strides, strict=False):
        yield f"core_{name}_stride", log2(step + 0.25)
    results, *reads = [_registers(operand, core.inside, minor, lanes) for operand in operands]
    moved = np.where(core.sums & (results <= RESULTS), 0.0, 2 * results)
    held, gathers = results.copy(), np.ones(len(lanes))
    for name, operand, count, step in zip(
        OPERANDS[1:], operands[1:], reads, strides[1:], strict=False
    ):
        stays = (step == 0) & (count < STEPS)
        moved = moved + np.where(stays, 0.0, count)
        held = held + np.where(step == 0, count, 1.0)
        apart = spread(operand, minor, lanes)
        gathers = np.maximum(gathers, apart)
        yield f"core_{name}_reads", log2(count)
        yield f"{name}_spread", log2(apart)
    width, vectors = _width(core, lanes, minor, strides[0]), np.ceil(lanes / LANES)
    products = core.steps * lanes * np.where(lanes > 1, 1.0, width)
    each = pieces(lanes) / vectors
    cost = (core.steps * vectors * gathers + moved) * each + 2
    # A sum's results are fetched and put away once for all its steps.
    cost = cost + np.where(core.sums, 2 * results * each / core.length, 0.0)
    yield "core_lanes", log2(width)
    yield "core_results", log2(results)
    yield "core_held", log2(held)
    yield "core_moved", log2(moved / (core.steps * vectors))
    yield "core_instructions", log2((core.steps * vectors + moved) / products)
    yield "core_cost", log2(cost / products) + 4


def _shape(core: Core, minor: int) -> Iterator[tuple[str, Floats64]]:
    yield "core_length", log2(core.length)
    yield "core_sums", np.where(core.sums, SHARE, 0.0)
    yield "core_minor", np.where(core.axis == minor, SHARE, 0.0)
    yield "core_steps", log2(core.steps)
    yield "core_summed", log2(core.summed)
    yield "core_inside", log2(core.inside[:, minor])
    yield "core_around", log2(core.around)
    yield "core_around_sums", np.where(core.around_sums, SHARE, 0.0)


def _width(core: Core, lanes: Floats64, minor: int, apart: Floats64) -> Floats64:
    """Lanes at work: the program's own, else those LLVM finds; of two neighbours half the time."""
    inside = np.minimum(core.inside[:, minor], LANES)
    joined = np.where(inside >= LEAST_JOINED, np.exp2(np.floor(np.log2(inside))), 1.0)
    joined = np.where(inside == 2, 1.5, joined)
    length = core.length.astype(np.int64)
    whole = np.minimum(length & -length, LANES)
    made = np.where((core.axis == minor) & (apart == 1), whole, joined)
    return np.where(lanes > 1, np.minimum(lanes, LANES), made)


def _registers(operand: Operand, inside: Floats64, minor: int, lanes: Floats64) -> Floats64:
    """Vectors that hold what a step of the core touches of an operand."""
    elements = touched(operand, inside).prod(1)
    along = any(minor in iterators(index) for index in operand.indices)
    return np.asarray(elements / lanes * np.ceil(lanes / LANES) if along else elements)
