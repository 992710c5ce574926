"""Random programs of a task, drawn from MetaSchedule's own design space by replaying traces.

This is TVM's way, 2-9 ms a candidate; it serves the demo, the benchmarks and as the yardstick
for sampling on integers alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tensorese.space.replay import SCHEDULE_ERRORS
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm

_MAX_TRIES = 50  # per wanted program, before the space is called exhausted


def random_schedules(module: Any, target: Target, n: int, seed: int = 0) -> list[Any]:
    """Up to `n` distinct schedules that pass every postprocessor, sketches taken in turn."""
    schedules: list[Any] = []
    seen: set[str] = set()
    for schedule in _draws(module, target, n * _MAX_TRIES, seed):
        decided = str(schedule.trace)
        if decided not in seen:
            seen.add(decided)
            schedules.append(schedule)
        if len(schedules) == n:
            break
    return schedules


def _draws(module: Any, target: Target, tries: int, seed: int) -> Iterator[Any]:
    tvm = import_tvm(target.kind)
    ms = tvm.s_tir.meta_schedule
    context = ms.TuneContext(
        mod=module,
        target=tvm.target.Target(target.to_dict()),
        space_generator="post-order-apply",
        num_threads=1,
    )
    sketches = context.generate_design_space()
    for attempt in range(tries):
        sketch = sketches[attempt % len(sketches)]
        # Seeds start at 1: TVM reads 0 and -1 as "choose one yourself".
        schedule = tvm.s_tir.Schedule(module, seed=1 + seed * tries + attempt)
        fresh = tvm.s_tir.schedule.Trace(sketch.trace.insts, {})
        try:
            fresh.apply_to_schedule(schedule, remove_postproc=True)
            schedule.enter_postproc()
            passed = all(post.apply(schedule) for post in context.space_generator.postprocs)
        except SCHEDULE_ERRORS:
            continue  # a draw TVM cannot schedule is no candidate
        if passed:
            yield schedule
