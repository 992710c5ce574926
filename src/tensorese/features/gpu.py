"""What a tiling means for a machine: threads, reuse, staged bytes, registers, idle lanes.

Each of these follows from the decisions by integer arithmetic that a network would have to
rediscover from products of a dozen tiles. Nothing is lowered. The machine is a generic GPU (a
warp of 32, 64 K registers and 64 KiB of staging memory a core): thresholds of a real one are
for the model to learn. On a CPU the outer two levels are the grid and there is one thread.
Shape legend: n programs, S spatial axes, R reduction axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Floats64
from tensorese.features.scale import SHARE, log2
from tensorese.features.tiling import Axis, Tiling
from tensorese.language.accesses import Block, coefficient, iterators
from tensorese.language.plan import Plan

Dim: TypeAlias = tuple[int, ...]
"""The axes that index one dimension of an operand; two for a sliding window."""

WARP, THREADS, REGISTERS, STAGED, BLOCKS, CORES = 32, 2048, 65536, 16384, 32, 80
SECTOR = 8
"""Words of four bytes that memory moves at once."""

# Operands by the number of spatial and reduction axes: convolution, depthwise convolution,
# matrix product, batched product, Winograd's batched product. First operand first.
OPERANDS: dict[tuple[int, int], tuple[tuple[Dim, ...], tuple[Dim, ...]]] = {
    (4, 3): (((0,), (4,), (2, 5), (3, 6)), ((1,), (4,), (5,), (6,))),
    (4, 2): (((0,), (1,), (2, 4), (3, 5)), ((1,), (4,), (5,))),
    (2, 1): (((0,), (2,)), ((2,), (1,))),
    (3, 1): (((0,), (1,), (3,)), ((0,), (3,), (2,))),
    (4, 1): (((0,), (1,), (4,), (3,)), ((0,), (1,), (4,), (2,))),
}
_PER_OPERAND = (
    *("staged", "vector", "loads", "full_loads", "run", "registers", "inner_registers"),
    *("warp_distinct", "conflict", "sectors"),
)
N_GROUPS = 3
NAMES: tuple[str, ...] = (
    *("grid", "vthreads", "threads", "inner1", "inner2", "reduce0", "reduce1", "reduce2"),
    *("accumulators", "inner_body", "body", "lanes", "unroll", "unroll_body", "unroll_inner"),
    *(f"{name}_{k}" for k in range(2) for name in _PER_OPERAND),
    *("staged", "intensity", "traffic", "reuse", "inner_reuse", "registers"),
    *("minor_threads", "minor_inner", "minor_vthreads", "minor_tile", "minor_whole"),
    *("minor_warp", "store_step", "store_sectors", "minor_lanes"),
    *("work", "memory"),
    *("resident", "active", "waves", "last_wave", "concurrent"),
    *(f"{name}_{k}" for k in range(N_GROUPS) for name in ("group", "group_lanes", "group_count")),
    "tiled",
)
N_FEATURES = len(NAMES)
_COLUMN = {name: k for k, name in enumerate(NAMES)}


def fill(count: Floats64, lanes: int = WARP) -> Floats64:
    """How full the last group of lanes is, as a share of all groups."""
    return np.asarray(SHARE * count / (np.ceil(np.maximum(count, 1) / lanes) * lanes))


class _Levels(NamedTuple):
    """Tile lengths: spatial `[n, S, 5]`, reduction `[n, R, 3]`."""

    s: Floats64
    r: Floats64

    def below(self, axis: int) -> Floats64:
        """Elements of an axis that one step of the outer reduction loop covers in a block."""
        n_spatial = self.s.shape[1]
        if axis < n_spatial:
            return np.asarray(self.s[:, axis, 1:].prod(1))
        return np.asarray(self.r[:, axis - n_spatial, 1:].prod(1))

    def whole(self, axis: int) -> Floats64:
        n_spatial = self.s.shape[1]
        return np.asarray(
            (self.s[:, axis] if axis < n_spatial else self.r[:, axis - n_spatial]).prod(1)
        )

    def held(self, axis: int) -> Floats64:
        """Elements a thread holds of an axis while its accumulators stay."""
        if axis >= self.s.shape[1]:
            return np.ones(len(self.s))
        return np.asarray(self.s[:, axis, 1] * self.s[:, axis, 3] * self.s[:, axis, 4])

    def inner(self, axis: int) -> Floats64:
        n_spatial = self.s.shape[1]
        if axis < n_spatial:
            return np.asarray(self.s[:, axis, 3] * self.s[:, axis, 4])
        return np.asarray(self.r[:, axis - n_spatial, 2])


@dataclass(frozen=True, kw_only=True, eq=False)
class Reads:
    """The operands of the tiled block as axes, spatial ones first, and the steps of windows."""

    operands: tuple[tuple[Dim, ...], ...]
    strides: dict[int, Floats64]


@dataclass(frozen=True, kw_only=True)
class Physics:
    """The features of one sketch's programs."""

    tiling: Tiling
    shapes: tuple[tuple[int, ...], ...] = ()
    """The task's arguments, for the stride of a sliding window."""
    reads: Reads | None = None
    """The operands that the module names; without it they are guessed from the number of axes."""

    @property
    def n_features(self) -> int:
        return N_FEATURES

    def features(self, values: Floats64) -> npt.NDArray[np.float32]:
        """`[n, N_FEATURES]` from decided values `[n, d]`; 0 where the sketch has no such thing."""
        out = np.zeros((len(values), N_FEATURES), dtype=np.float32)

        def put(name: str, column: Any) -> None:
            out[:, _COLUMN[name]] = column

        self._groups(values, put)
        if self.tiling.unroll is not None:
            put("unroll", log2(values[:, self.tiling.unroll] + 1))
        if self.tiling.spatial:
            levels = self._levels(values)
            reads = self.reads or _guessed(self.tiling, levels, self.shapes)
            _tiled(self.tiling, levels, values, reads, put)
        return out

    def _levels(self, values: Floats64) -> _Levels:
        n, reduction = len(values), self.tiling.reduction
        s = np.stack([_axis(axis, values, 5) for axis in self.tiling.spatial], axis=1)
        r = (
            np.stack([_axis(axis, values, 3) for axis in reduction], axis=1)
            if reduction
            else np.ones((n, 1, 3))
        )
        return _Levels(s, r)

    def _groups(self, values: Floats64, put: Callable[[str, Any], None]) -> None:
        sizes = [size for shape in self.shapes[-1:] for size in shape]
        for k, group in enumerate(self.tiling.groups[:N_GROUPS]):
            threads = np.maximum(values[:, group.threads], 1)
            extent = group.extent or float(np.prod(sizes, dtype=np.float64))
            put(f"group_{k}", log2(threads))
            put(f"group_lanes_{k}", fill(threads))
            put(f"group_count_{k}", log2(np.ceil(extent / threads)))


def _axis(axis: Axis, values: Floats64, levels: int) -> Floats64:
    """`[n, levels]`. A CPU's four are (0 and 1: grid; 2, 3: inner), its reductions (0, 1)."""
    parts = np.maximum(values[:, list(axis.levels)], 1)
    if axis.extent is not None:
        outer = np.maximum(axis.extent / parts.prod(1), 1)
        parts = np.concatenate([outer[:, None], parts], axis=1)
    if parts.shape[1] == levels:
        return np.asarray(parts)
    out = np.ones((len(parts), levels))
    if levels == 5:
        inner = min(2, parts.shape[1] - 1)
        out[:, 0] = parts[:, : parts.shape[1] - inner].prod(1)
        out[:, levels - inner :] = parts[:, parts.shape[1] - inner :]
    else:
        out[:, 0] = parts[:, 0]
        out[:, -1] = parts[:, 1:].prod(1)
    return out


def _tiled(
    tiling: Tiling,
    t: _Levels,
    values: Floats64,
    reads: Reads,
    put: Callable[[str, Any], None],
) -> None:
    grid, vthreads, threads, inner1, inner2 = (t.s[:, :, k].prod(1) for k in range(5))
    reduce0, reduce1, reduce2 = (t.r[:, :, k].prod(1) for k in range(3))
    accumulators = vthreads * inner1 * inner2
    body = accumulators * reduce1 * reduce2
    put("tiled", SHARE)
    for name, product in (
        *(("grid", grid), ("vthreads", vthreads), ("threads", threads)),
        *(("inner1", inner1), ("inner2", inner2), ("accumulators", accumulators)),
        *(("reduce0", reduce0), ("reduce1", reduce1), ("reduce2", reduce2)),
        *(("inner_body", inner1 * inner2 * reduce1 * reduce2), ("body", body)),
    ):
        put(name, log2(product))
    put("lanes", fill(threads))
    if tiling.unroll is not None:
        limit = log2(values[:, tiling.unroll])
        put("unroll_body", np.clip(limit - log2(body), -8, 8))
        put("unroll_inner", np.clip(limit - log2(inner2 * reduce2), -8, 8))
    store = _minor(t, put)
    staged, held, touched, moved = _operands(tiling, t, values, threads, reads, put)
    # Words moved per product: what is fetched again and again, and each output once.
    work = reduce0 * reduce1 * reduce2
    put("work", log2(work))
    put("memory", log2(moved / (threads * body) + store / work) + 8)
    put("staged", log2(staged))
    put("intensity", log2(threads * body / staged))
    put("traffic", log2(grid * reduce0 * staged))
    put("reuse", log2(accumulators / held))
    put("inner_reuse", log2(inner1 * inner2 * reduce2 / touched))
    registers = accumulators + held
    put("registers", log2(registers))
    _residency(grid, threads, staged, registers, put)


def _minor(t: _Levels, put: Callable[[str, Any], None]) -> Floats64:
    """The last spatial axis: neighbours in memory, and the first to be dealt to a warp.

    Returns the words of memory sectors that a warp touches for each word it stores, 1 to 8.
    """
    last = t.s[:, -1]
    inner = last[:, 3] * last[:, 4]
    put("minor_threads", log2(last[:, 2]))
    put("minor_inner", log2(inner))
    put("minor_vthreads", log2(last[:, 1]))
    put("minor_tile", log2(last[:, 1:].prod(1)))
    put("minor_whole", SHARE * (last[:, 0] == 1))
    put("minor_lanes", fill(last[:, 4], 16))
    lanes = warp_lanes(t.s[:, :, 2])
    put("minor_warp", log2(lanes[:, -1]))
    # How far apart two neighbouring threads write.
    step, behind, apart = np.ones(len(last)), np.ones(len(last)), np.ones(len(last))
    settled = np.zeros(len(last), dtype=bool)
    for axis in reversed(range(t.s.shape[1])):
        here = ~settled & (t.s[:, axis, 2] > 1)
        step[here] = (t.inner(axis) * behind)[here]
        apart[here] = lanes[here, axis]
        settled |= here
        behind = behind * t.whole(axis)
    sectors = SECTOR * np.minimum(apart, np.ceil(apart * step / SECTOR)) / apart
    put("store_step", log2(step))
    put("store_sectors", log2(sectors))
    return np.asarray(sectors)


def warp_lanes(threads: Floats64) -> Floats64:
    """`[n, S]`: how many of a warp's lanes differ along each axis; the last runs fastest."""
    lanes = np.ones_like(threads)
    left = np.full(len(threads), float(WARP))
    for axis in reversed(range(threads.shape[1])):
        lanes[:, axis] = np.minimum(threads[:, axis], left)
        left = np.maximum(np.floor(left / lanes[:, axis]), 1)
    return lanes


def _operands(
    tiling: Tiling,
    t: _Levels,
    values: Floats64,
    threads: Floats64,
    reads: Reads,
    put: Callable[[str, Any], None],
) -> tuple[Floats64, Floats64, Floats64, Floats64]:
    """Elements staged a block, held a thread, touched by a thread's inner body, moved: sums."""
    n, n_spatial = len(values), t.s.shape[1]
    staged, held, touched, moved = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    lanes = warp_lanes(t.s[:, :, 2])
    stride = reads.strides
    for k, dims in enumerate(reads.operands):
        sizes = [_window(t.below, dim, stride) for dim in dims]
        mine = np.asarray(np.prod(sizes, axis=0))
        keeps = np.asarray(np.prod([t.held(dim[0]) for dim in dims], axis=0))
        inner = np.asarray(np.prod([_window(t.inner, dim, stride) for dim in dims], axis=0))
        staged, held, touched = staged + mine, held + keeps, touched + inner
        vector = np.ones(n)
        if k < len(tiling.vectors):
            vector = np.maximum(values[:, tiling.vectors[k]], 1)
        loads = np.ceil(mine / (threads * vector))
        spatial = [dim[0] for dim in dims if dim[0] < n_spatial]
        put(f"staged_{k}", log2(mine))
        put(f"vector_{k}", log2(vector))
        put(f"loads_{k}", log2(loads))
        put(f"full_loads_{k}", SHARE * mine / (loads * threads * vector))
        run = _run(t, dims, sizes)
        sectors = np.ceil(run / SECTOR) * SECTOR / run
        moved = moved + mine * sectors
        put(f"run_{k}", log2(run))
        put(f"sectors_{k}", log2(sectors))
        put(f"registers_{k}", log2(keeps))
        put(f"inner_registers_{k}", log2(inner))
        put(f"warp_distinct_{k}", log2(lanes[:, spatial].prod(1)))
        put(f"conflict_{k}", log2(_conflict(t, dims, sizes, lanes, stride)))
    one = np.ones(n)
    return np.maximum(staged, one), np.maximum(held, one), np.maximum(touched, one), moved


def _guessed(tiling: Tiling, t: _Levels, shapes: Sequence[tuple[int, ...]]) -> Reads:
    known = OPERANDS.get((t.s.shape[1], len(tiling.reduction)), ())
    return Reads(operands=known, strides=_strides(shapes, t))


def named_reads(tiling: Tiling, plan: Plan, blocks: Sequence[Block]) -> Reads | None:
    """The two operands of the tiled block, their dimensions as axes of the tiling."""
    block = next((block for block in blocks if block.name == plan.block), None)
    if block is None or not tiling.spatial:
        return None
    levels = [axis.levels for axis in (*tiling.spatial, *tiling.reduction)]
    place = {tile.loop: levels.index(tile.parts) for tile in plan.tiles if tile.parts in levels}
    written = {operand.buffer for operand in block.writes}
    operands: list[tuple[Dim, ...]] = []
    strides: dict[int, Floats64] = {}
    for read in [read for read in block.reads if read.buffer not in written][:2]:
        dims: list[Dim] = []
        for index in read.indices:
            used = [loop for loop in sorted(iterators(index)) if loop in place]
            straight = [loop for loop in used if coefficient(index, loop)] or used[:1]
            dim = tuple(sorted(place[loop] for loop in straight))[:2]
            if not dim:
                continue
            dims.append(dim)
            if len(dim) == 2:
                first = next(loop for loop in straight if place[loop] == dim[0])
                strides[dim[0]] = np.asarray(max(abs(coefficient(index, first)), 1.0))
        if dims:
            operands.append(tuple(dims))
    return Reads(operands=tuple(operands), strides=strides)


def _strides(shapes: Sequence[tuple[int, ...]], t: _Levels) -> dict[int, Floats64]:
    """Steps of the window along axes 2 and 3, from the first argument's size over the output's."""
    if not shapes or len(shapes[0]) != 4 or t.s.shape[1] != 4:
        return {}
    return {
        axis: np.maximum(np.round(shapes[0][axis] / np.maximum(t.whole(axis), 1)), 1)
        for axis in (2, 3)
    }


def _window(size: Callable[[int], Floats64], dim: Dim, stride: dict[int, Floats64]) -> Floats64:
    if len(dim) == 1:
        return size(dim[0])
    return np.asarray((size(dim[0]) - 1) * stride.get(dim[0], 1.0) + size(dim[1]))


def _run(t: _Levels, dims: Sequence[Dim], sizes: Sequence[Floats64]) -> Floats64:
    """Neighbouring elements that a block stages in one go: whole inner dimensions join."""
    run, going = np.ones(len(t.s)), np.ones(len(t.s), dtype=bool)
    for dim, size in zip(reversed(dims), reversed(sizes), strict=True):
        run = np.where(going, run * size, run)
        going = going & (t.below(dim[0]) == t.whole(dim[0]))
    return run


def _conflict(
    t: _Levels,
    dims: Sequence[Dim],
    sizes: Sequence[Floats64],
    lanes: Floats64,
    stride: dict[int, Floats64],
) -> Floats64:
    """Lanes of a warp that ask the same of 32 memory banks for different words."""
    worst, behind = np.ones(len(t.s)), np.ones(len(t.s))
    settled = np.zeros(len(t.s), dtype=bool)
    for dim, size in zip(reversed(dims), reversed(sizes), strict=True):
        axis = dim[0]
        if axis < t.s.shape[1]:
            step = t.inner(axis) * behind * (stride.get(axis, 1.0) if len(dim) > 1 else 1.0)
            here = ~settled & (lanes[:, axis] > 1)
            same = np.minimum(np.gcd(step.astype(np.int64), WARP), lanes[:, axis])
            worst[here] = same[here]
            settled |= here
        behind = behind * size
    return worst


def _residency(
    grid: Floats64,
    threads: Floats64,
    staged: Floats64,
    registers: Floats64,
    put: Callable[[str, Any], None],
) -> None:
    """Blocks a core can hold at once, and how the grid fills all cores."""
    warps = np.ceil(threads / WARP) * WARP
    each = np.minimum(registers, 230) + 24  # addresses and counters beside the tile
    resident = np.minimum.reduce(
        [
            np.floor(THREADS / warps),
            np.floor(STAGED / staged),
            np.floor(REGISTERS / (each * warps)),
            np.full(len(grid), float(BLOCKS)),
        ]
    )
    held = np.maximum(resident, 0.5)
    waves = grid / (CORES * np.maximum(resident, 1))
    put("resident", log2(held) + 1)
    put("active", log2(held * threads))
    put("waves", log2(waves))
    put("last_wave", SHARE * waves / np.ceil(waves))
    put("concurrent", log2(np.minimum(grid, CORES * held) * threads))
