"""The limits of a CUDA sketch, derived from its loops and accesses and checked against TVM."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from tensorese.arrays import Ints
from tensorese.space.accesses import Access
from tensorese.space.decisions import DecisionSpace
from tensorese.space.limits import (
    AskedDimension,
    Dimension,
    Limit,
    Product,
    SharedMemory,
    StagedBuffer,
    Verdicts,
)
from tensorese.space.memo import Asked
from tensorese.space.nests import Nest, Stage, read_nest
from tensorese.space.probing import Probe
from tensorese.space.slots import Choice, Slot, Tile

MAX_VERDICTS = 4096  # most cases that TVM decides, for a sketch without tiles
TOO_LARGE = 1 << 20  # elements: more than any shared memory holds
UNROLL = "meta_schedule.unroll_explicit"  # a hint that few verdicts depend on


def find_limits(probe: Probe, space: DecisionSpace) -> DecisionSpace:
    """The space with the target's limits, or with the reason why they are not known."""
    if not any(isinstance(slot, Tile) for slot in space.slots):
        return _with_verdicts(probe, space)
    nest = read_nest(space.sketch, space.slots, space.constants)
    if isinstance(nest, str):
        return replace(space, reason=nest)
    target = probe.referee.target.to_dict()
    most = min(nest.high, int(target["max_threads_per_block"]))
    threads = Product(columns=nest.threads, low=nest.low, high=most)
    shared = SharedMemory(
        buffers=tuple(_staged(probe, nest)), limit=int(target["max_shared_memory_per_block"])
    )
    cheap: tuple[Limit, ...] = (threads, shared)
    if nest.pipeline:
        # A pipelined loop of one trip is no reduction loop to TVM, which then puts the
        # initialisation inside it, where the pipeline finds one statement too many.
        cheap = (threads, Product(columns=nest.pipelined, low=2), shared)
    if shared.is_exact:
        return replace(space, limits=cheap)
    # Compaction may round such a region up, in ways its index does not show: what the arithmetic
    # leaves is put to TVM row by row.
    columns = tuple(c for slot in space.slots if not _is_hint(slot) for c in _columns(slot))
    verdict: Asked[bool] = Asked(columns=columns, ask=probe.passes)
    return replace(space, limits=(*cheap, Verdicts(asked=verdict)))


def _is_hint(slot: Slot) -> bool:
    return isinstance(slot, Choice) and slot.purpose == UNROLL


def _columns(slot: Slot) -> range:
    return range(slot.column, slot.column + slot.width)


def _with_verdicts(probe: Probe, space: DecisionSpace) -> DecisionSpace:
    across = space.reduces_across_threads
    choices = [slot for slot in space.slots if isinstance(slot, Choice)]
    deciding = [slot for slot in choices if across or not _is_hint(slot)]
    cases = math.prod(len(slot.options) for slot in deciding)
    if cases > MAX_VERDICTS:
        return replace(space, reason=f"{cases} combinations of choices decide the verdict")
    ask = probe.builds if across else probe.passes
    verdict: Asked[bool] = Asked(columns=tuple(slot.column for slot in deciding), ask=ask)
    return replace(space, limits=(Verdicts(asked=verdict),))


def _staged(probe: Probe, nest: Nest) -> list[StagedBuffer]:
    schedule = probe.before(nest.get_loops, np.ones(0, dtype=np.int64))
    block = schedule.get(probe.variable(schedule, nest.get_loops, 0))
    copies = 1 + max(nest.pipeline, default=0)
    buffers = []
    for stage in nest.stages:
        region = block.reads[stage.read]
        regions = _Regions(probe, nest, stage, block.iter_vars, len(region.region))
        dimensions = tuple(
            regions.dimension(place, bounds, int(cap))
            for place, (bounds, cap) in enumerate(
                zip(region.region, region.source.shape, strict=True)
            )
        )
        element = probe.referee.tvm.DataType(region.source.dtype)
        size = (int(element.bits) * int(element.lanes) + 7) // 8
        buffers.append(StagedBuffer(dimensions=dimensions, element_bytes=size, copies=copies))
    return buffers


class _Regions:
    """The extents of one staged copy, by dimension."""

    def __init__(self, probe: Probe, nest: Nest, stage: Stage, iterators: Any, rank: int) -> None:
        self.tvm = probe.referee.tvm
        self.probe, self.stage, self.rank = probe, stage, rank
        self.access = Access(self.tvm, iterators)
        self.spans = [tuple(c for c in axis if c in stage.inside) for axis in nest.axes]

    def dimension(self, place: int, bounds: Any, cap: int) -> Dimension | AskedDimension:
        coefficients = self.access.affine(bounds.min)
        if coefficients is not None:
            pairs = zip(coefficients, self.spans, strict=True)
            terms = tuple((abs(c), span) for c, span in pairs if c)
            return Dimension(terms=terms, cap=cap, base=int(bounds.extent))
        spans = tuple(self.spans[axis] for axis in self.access.axes(bounds.min))
        extent: Asked[int] = Asked(spans=spans, ask=lambda row: self._extent(place, row))
        return AskedDimension(asked=extent)

    def _extent(self, place: int, row: Ints) -> int:
        """What TVM's own region analysis gives the copy in this dimension."""
        schedule = self.probe.before(self.stage.compute_at + 1, row)
        block = self.probe.variable(schedule, self.stage.compute_at, 0)
        extent = schedule.get(schedule.get_loops(block)[place - self.rank]).extent
        # An extent that varies from block to block is refused (DisallowDynamicLoop).
        return int(extent) if isinstance(extent, self.tvm.tirx.IntImm) else TOO_LARGE
