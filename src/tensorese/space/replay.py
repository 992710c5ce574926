"""TVM as the referee: its sketches, its replay of one row, its postprocessors' verdict."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tensorese.space.placed_replay import Placing, find_placing
from tensorese.space.tiles import SpaceError
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm

# What TVM raises for a row it cannot schedule (its own errors are RuntimeErrors).
SCHEDULE_ERRORS = (RuntimeError, ValueError, TypeError)
# Postprocessors that judge and change nothing: this one lowers the whole program to do so.
VERIFIERS = frozenset({"VerifyGPUCode"})


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """A row as TVM scheduled it."""

    schedule: Any
    decisions: tuple[int, ...]
    """Read back from the trace: TVM repairs what it does not accept, without a word."""
    passed: bool
    """Every postprocessor agreed."""


def tune_context(module: Any, target: Target) -> Any:
    """Stock MetaSchedule's rules for a module and target.

    For CUDA these are the plain `cuda` rules, which need none of the tensor intrinsics that take
    20 s to import; the tensor-core family is a space of its own. For processors that are no x86
    they are the plain `llvm` rules likewise: their own tensorize int8 alone.
    """
    # Plain rules tensorize with nothing but x86's intrinsics, which cost little.
    tvm = import_tvm("llvm")
    ms = tvm.s_tir.meta_schedule
    generator = "post-order-apply"
    machine = str(dict(target.attributes).get("mtriple", os.uname().machine))
    if target.kind == "cuda" or (target.is_cpu and not machine.startswith("x86")):
        generator = ms.space_generator.PostOrderApply(
            sch_rules=target.kind, postprocs=target.kind, mutator_probs=target.kind
        )
    return ms.TuneContext(
        mod=module,
        target=tvm.target.Target(target.to_dict()),
        space_generator=generator,
        num_threads=1,
    )


def stock_postprocessors(module: Any, target: Target) -> list[Any]:
    return list(tune_context(module, target).space_generator.postprocs)


class ScheduleRules:
    """A task's module and target, and stock MetaSchedule's rules for them."""

    def __init__(self, module: Any, target: Target) -> None:
        self.tvm = import_tvm("llvm")
        self.module = module
        self.target = target
        self.context = tune_context(module, target)
        try:
            schedules = self.context.generate_design_space()
        except SCHEDULE_ERRORS as error:
            raise SpaceError(
                "stock MetaSchedule must be able to schedule a task, but its rules fail on this "
                f"one: {_last_line(error)}; it can only be compiled as it is"
            ) from error
        self.traces = [schedule.trace for schedule in schedules]
        self.instructions = [list(trace.insts) for trace in self.traces]
        self._unscheduled = self.tvm.s_tir.Schedule(module)
        self._lock = threading.Lock()

    def prefix(self, sketch: int, stop: int, values: Sequence[tuple[int, Any]]) -> Any:
        """The schedule after the first `stop` instructions; `values` are `(instruction, value)`."""
        instructions = self.instructions[sketch]
        decided = {instructions[index]: value for index, value in values if index < stop}
        schedule = self._fresh()
        trace = self.tvm.s_tir.schedule.Trace(instructions[:stop], decided)
        trace.apply_to_schedule(schedule, remove_postproc=False)
        return schedule

    def _fresh(self) -> Any:
        """A schedule of the module: a copy costs a tenth of making one."""
        with self._lock:
            return self._unscheduled.copy()

    def _scheduled(self, sketch: int, values: Sequence[tuple[int, Any]], traced: bool) -> Any:
        placing = None if traced else self._placings[sketch]
        if placing is None:
            return self.prefix(sketch, len(self.instructions[sketch]), values)
        schedule = self.prefix(sketch, placing.first, values)
        placing.finish(self.tvm, schedule, dict(values))
        return schedule

    def replay(
        self,
        sketch: int,
        values: Sequence[tuple[int, Any]],
        *,
        verify: bool = True,
        traced: bool = True,
    ) -> Replayed:
        """Scheduled and postprocessed; raises what TVM raises when it cannot.

        Without `verify` the postprocessors that only judge are left out. Without `traced`, TVM does
        not check whether blocks may go where the row puts them; the trace can then be written out
        but not replayed in memory (its locations are objects where TVM wants integers).
        """
        schedule = self._scheduled(sketch, values, traced=traced)
        decisions = _decided_at(schedule.trace, [index for index, _ in values])
        schedule.enter_postproc()
        postprocessors = self.postprocessors if verify else self.rewriters
        passed = all(one.apply(schedule) for one in postprocessors)
        return Replayed(schedule=schedule, decisions=decisions, passed=passed)

    def lowers(self, module: Any) -> bool:
        """Whether TVM brings a scheduled CUDA module to where only its code is left to write.

        Its postprocessors pass what its lowering then refuses: a reduction across threads inside
        a loop that is unrolled.
        """
        tirx, target = self.tvm.tirx, self.context.target
        bound = tirx.transform.BindTarget(target.with_host(self.tvm.target.Target("llvm")))
        try:
            with target:
                tirx.get_default_tir_pipeline(target)[0](bound(module))
        except SCHEDULE_ERRORS:
            return False
        return True

    @cached_property
    def _placings(self) -> list[Placing | None]:
        return [find_placing(instructions) for instructions in self.instructions]

    @cached_property
    def postprocessors(self) -> list[Any]:
        return list(self.context.space_generator.postprocs)

    @cached_property
    def rewriters(self) -> list[Any]:
        """The postprocessors that may change the program."""
        return [one for one in self.postprocessors if type(one).__name__ not in VERIFIERS]

    @cached_property
    def _original_loops(self) -> list[Any]:
        schedule = self.tvm.s_tir.Schedule(self.module)
        blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
        return [schedule.get(loop).loop_var for b in blocks for loop in schedule.get_loops(b)]

    def is_original(self, loop_var: Any) -> bool:
        """Whether this is a loop of the unscheduled module, whose extent no decision changes."""
        return any(known.same_as(loop_var) for known in self._original_loops)


def _last_line(error: Exception) -> str:
    """What TVM says after printing the whole program."""
    return str(error).strip().splitlines()[-1].removeprefix("Error message: ")[:300]


def decisions_of(trace: Any) -> tuple[int, ...]:
    """The integers of a trace in `Program.decisions` order."""
    decided = trace.decisions
    flat: list[int] = []
    for instruction in trace.insts:
        if instruction in decided:
            value = decided[instruction]
            flat.extend([int(value)] if _is_number(value) else [int(item) for item in value])
    return tuple(flat)


def _decided_at(trace: Any, instructions: Sequence[int]) -> tuple[int, ...]:
    """As `decisions_of`, where it is known which instructions have one: all others cost a lookup
    each, a millisecond in all."""
    made, decided = trace.insts, trace.decisions
    flat: list[int] = []
    for index in instructions:
        value = decided[made[index]]
        flat.extend([int(value)] if _is_number(value) else [int(item) for item in value])
    return tuple(flat)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) or hasattr(value, "value")
