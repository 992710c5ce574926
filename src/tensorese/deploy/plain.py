"""A plain schedule for CPU kernels that nobody tuned: cores outside, vectors inside.

TVM's own default is the loops as written, on one core. An interrupted run would ship those; this
costs milliseconds, needs no measurement, and every library is verified anyway.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

from tensorese.tvm_env import import_tvm
from tensorese.workloads.fixed_kernels import fixed_schedule, is_fixed

_VECTORS = (64, 32, 16, 8, 4)  # elements of the innermost loop, the longest that divides it
_WORTH_A_THREAD = 1 << 13  # element updates of a block: below, waking another core costs more
_SPATIAL, _REDUCTION = 0, 2


def plain_schedule(module: Any) -> Any:
    """The module's blocks one by one; a block that does not fit the pattern stays as it is."""
    tvm = import_tvm()
    if is_fixed(module):
        return fixed_schedule(module)
    refused = (tvm.s_tir.ScheduleError, tvm.error.InternalError, ValueError, RuntimeError)
    schedule = tvm.s_tir.Schedule(module)
    try:
        root = schedule.get_sblock("root")
    except refused:  # one opaque block, a sort or a scan: nothing to schedule
        return module
    for block in schedule.get_child_blocks(root):
        with contextlib.suppress(*refused):  # each step keeps the meaning: half of them will do
            _schedule(schedule, block)
    return schedule.mod


def _schedule(schedule: Any, block: Any) -> None:
    loops = list(schedule.get_loops(block))
    kinds = [int(var.iter_type) for var in schedule.get(block).iter_vars]
    if len(loops) != len(kinds) or not set(kinds) <= {_SPATIAL, _REDUCTION}:
        return
    extents = [int(schedule.get(loop).extent) for loop in loops]
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == _SPATIAL]
    reductions = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == _REDUCTION]
    if not spatial:
        return
    innermost = int(schedule.get(spatial[-1]).extent)
    width = next((v for v in _VECTORS if innermost % v == 0), 0)
    if _reads_or_writes_bool(schedule.get(block)):
        width = 0
    inner = []
    if width:
        rest, vector = schedule.split(spatial[-1], [innermost // width, width])
        spatial[-1], inner = rest, [vector]
    schedule.reorder(*spatial, *reductions, *inner)
    shared = schedule.fuse(*spatial) if len(spatial) > 1 else spatial[0]
    if inner:
        schedule.vectorize(inner[0])
    if math.prod(extents) >= _WORTH_A_THREAD:
        schedule.parallel(shared)
    if reductions:
        schedule.decompose_reduction(block, reductions[0])


def _reads_or_writes_bool(block: Any) -> bool:
    """TVM negates a vector of truth values bit by bit: of 1 it makes -2, which is true."""
    regions = [*block.reads, *block.writes]
    return any(str(region.source.dtype) == "bool" for region in regions)
