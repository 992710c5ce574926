"""Limits on compute locations of a CPU sketch whose tiled block reads through divisions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tensorese.space.accesses import Access
from tensorese.space.decisions import DecisionSpace
from tensorese.space.limits import PlacedRegion
from tensorese.space.locations import LoopRule
from tensorese.space.nests import Nest, read_nest
from tensorese.space.probing import Probe


def find_placements(probe: Probe, space: DecisionSpace) -> DecisionSpace:
    """The space with a limit for every location under such a block; mostly there is none."""
    nest = read_nest(space.sketch, space.slots, space.constants)
    if isinstance(nest, str):
        return space
    axes = tuple(nest.axes[place] for place in _irregular(probe, nest))
    limits = []
    for slot in space.locations if axes else ():
        rule = space.locators[slot.column]
        if isinstance(rule, LoopRule):
            depths = {c: d for d, loop in enumerate(rule.loops) for c in loop.columns}
            if all(column in depths for axis in axes for column in axis):
                limit = PlacedRegion(
                    column=slot.column, axes=axes, depths=depths, verdicts={}, ask=probe.passes
                )
                limits.append(limit)
    return replace(space, limits=(*space.limits, *limits))


def _irregular(probe: Probe, nest: Nest) -> list[int]:
    """Iterators of the tiled block that enter some index through a division."""
    schedule = probe.before(nest.get_loops, np.ones(0, dtype=np.int64))
    block = schedule.get(probe.variable(schedule, nest.get_loops, 0))
    access = Access(probe.referee.tvm, block.iter_vars)
    axes: set[int] = set()
    for region in block.reads:
        for bounds in region.region:
            if access.affine(bounds.min) is None:
                axes.update(access.axes(bounds.min))
    return sorted(axes)
