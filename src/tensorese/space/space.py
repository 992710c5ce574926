"""A task's space: one `DecisionSpace` per sketch, built and checked against TVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tensorese.arrays import Ints
from tensorese.identity import plain
from tensorese.language.constants import Constants, put_constants, take_constants
from tensorese.language.metaschedule import Trace, join_trace, split_trace
from tensorese.records.nouns import Program, Sketch, Workload
from tensorese.space.decisions import DecisionSpace
from tensorese.space.kernels import find_limits
from tensorese.space.location_limits import find_placements
from tensorese.space.location_rules import find_locators
from tensorese.space.locations import LoopRule
from tensorese.space.probing import Probe
from tensorese.space.replay import SCHEDULE_ERRORS, Replayed, ScheduleRules, decisions_of
from tensorese.space.slots import typed_slots
from tensorese.space.tiles import SpaceError
from tensorese.targets import Target


@dataclass(frozen=True, kw_only=True)
class TaskSpace:
    """Every sketch of a module on a target. Rows belong to one sketch: pass its index along."""

    referee: ScheduleRules
    sketches: tuple[DecisionSpace, ...]
    probes: tuple[Probe, ...]

    def replay(
        self,
        sketch: int,
        row: Ints | Sequence[int],
        *,
        verify: bool = True,
        traced: bool = True,
    ) -> Replayed:
        """TVM's schedule of the row; raises what TVM raises. The options are `Referee.replay`'s."""
        values = self.probes[sketch].values(row)
        return self.referee.replay(sketch, values, verify=verify, traced=traced)

    def is_legal(self, sketch: int, row: Ints | Sequence[int]) -> bool:
        """The definition: replay returns the row itself, limits hold, postprocessors pass, and
        TVM lowers it."""
        space = self.sketches[sketch]
        tiles = [slot for slot in space.slots if hasattr(slot, "holds")]
        array = np.asarray(row, dtype=np.int64)[None]
        if not all(bool(slot.holds(array)[0]) for slot in tiles):
            return False
        try:
            done = self.replay(sketch, row)
        except SCHEDULE_ERRORS:
            return False
        exact = done.decisions == tuple(int(v) for v in row)
        return exact and done.passed and self.lowers(sketch, done.schedule)

    def lowers(self, sketch: int, schedule: Any) -> bool:
        """TVM lowers only where its postprocessors are known to pass what it then cannot lower."""
        doubtful = self.sketches[sketch].reduces_across_threads
        return not doubtful or self.referee.lowers(schedule.mod)

    def program(self, sketch: int, row: Ints | Sequence[int], workload: Workload) -> Program:
        """The row as a program; its tail is empty until it is materialised."""
        decisions = tuple(int(v) for v in row)
        return Program(workload=workload, sketch=self.sketches[sketch].sketch, decisions=decisions)

    def encode(self, trace: Trace) -> tuple[int, tuple[int, ...], dict[int, int]]:
        """`(sketch, row, constants)` of a MetaSchedule trace; what the tail holds is dropped.

        Stock search simplifies the traces that it takes from a database: a decision that nothing
        depends on is gone then, and comes back as the sketch itself has it; constants are this
        platform's.
        """
        body, slots, decisions, _ = split_trace(trace)
        body, constants = take_constants(body)
        wanted = Sketch(dialect="metaschedule", body=body, slots=slots).id
        for index, space in enumerate(self.sketches):
            if space.sketch.id == wanted:
                return index, decisions, constants
        if wanted in self._simplified:
            index, columns, row = self._simplified[wanted]
            row = list(row)
            for column, value in zip(columns, decisions, strict=True):
                row[column] = value
            return index, tuple(row), dict(self.sketches[index].constants)
        raise SpaceError(
            f"a trace must be of one of the task's {len(self.sketches)} sketches, but its sketch "
            f"is {wanted}; was it made for another module, target or TVM?"
        )

    @cached_property
    def _simplified(self) -> dict[str, tuple[int, list[int], list[int]]]:
        """By the id a sketch has when simplified: its index, the columns left, and a row of it."""
        simplified = {}
        for index, trace in enumerate(self.referee.traces):
            short = trace.simplified(remove_postproc=True)
            body, slots, decisions, _ = split_trace(plain(short.as_json()))
            wanted = Sketch(dialect="metaschedule", body=take_constants(body)[0], slots=slots).id
            row = list(decisions_of(trace))
            left = _columns_left(trace, short)
            if len(left) == len(decisions):
                simplified[wanted] = (index, left, row)
        return simplified

    def decode(
        self, sketch: int, row: Ints | Sequence[int], constants: Constants | None = None
    ) -> Trace:
        """The trace of a row, with this platform's constants unless others are given."""
        space = self.sketches[sketch]
        body = put_constants(space.sketch.body, space.constants if constants is None else constants)
        return join_trace(body, space.sketch.slots, tuple(int(v) for v in row))


def _columns_left(trace: Any, short: Any) -> list[int]:
    """The columns of a trace whose decisions are still in its simplified version."""
    decided, left = trace.decisions, short.decisions
    columns: list[int] = []
    at = 0
    for instruction in trace.insts:
        if instruction in decided:
            value = decided[instruction]
            width = 1 if isinstance(value, int) or hasattr(value, "value") else len(value)
            if instruction in left:
                columns.extend(range(at, at + width))
            at += width
    return columns


def task_space(module: Any, target: Target, *, seed: int = 0) -> TaskSpace:
    """Builds the space of `module["main"]` for a target.

    A CUDA space needs no GPU. Sketches the integers do not decide say why in `reason`.
    """
    referee = ScheduleRules(module, target)
    rng = np.random.default_rng(seed)
    spaces, probes = [], []
    checked: set[LoopRule] = set()
    for index, trace in enumerate(referee.traces):
        space, probe = _sketch_space(referee, index, trace)
        if space.covered:
            space = find_locators(probe, space, rng, checked)
        if space.covered:
            find = find_limits if target.kind == "cuda" else find_placements
            space = find(probe, space)
        spaces.append(space)
        probes.append(probe)
    return TaskSpace(referee=referee, sketches=tuple(spaces), probes=tuple(probes))


def _sketch_space(referee: ScheduleRules, index: int, trace: Any) -> tuple[DecisionSpace, Probe]:
    body, slots, decisions, _ = split_trace(plain(trace.as_json()))
    body, constants = take_constants(body)
    sketch = Sketch(dialect="metaschedule", body=body, slots=slots)
    try:
        typed, reason = typed_slots(sketch, decisions), ""
    except SpaceError as error:
        typed, reason = (), str(error)
    space = DecisionSpace(sketch=sketch, slots=typed, constants=constants)
    probe = Probe(referee=referee, index=index, sketch=sketch, slots=typed)
    return replace(space, reason=reason), probe
