"""From TVM's objects to candidates: a schedule or a module, named by what it computes."""

from __future__ import annotations

from typing import Any

from tensorese.identity import plain, structure_of, workload_of
from tensorese.language.constants import take_constants
from tensorese.language.metaschedule import split_trace
from tensorese.measure.base import Candidate
from tensorese.measure.jobs import EMPTY_TRACE
from tensorese.records.nouns import Program, Sketch, Workload
from tensorese.tvm_env import import_tvm


def from_schedule(
    schedule: Any, workload: Workload, *, origin: str = "", split: str = ""
) -> Candidate:
    """A schedule of `workload`, identified by the decisions its trace really holds.

    The platform's numbers in its sketch are no part of it.
    """
    tvm = import_tvm()
    body, slots, decisions, tail = split_trace(plain(schedule.trace.as_json()))
    body, _ = take_constants(body)
    sketch = Sketch(dialect="metaschedule", body=body, slots=slots)
    program = Program(workload=workload, sketch=sketch, decisions=decisions, tail=tail)
    module = tvm.ir.save_json(schedule.mod)
    return Candidate(program=program, module=module, origin=origin, split=split)


def from_module(
    module: Any, workload: Workload | None = None, *, origin: str = "", split: str = ""
) -> Candidate:
    """A module as it stands. One that is no unscheduled workload is its own sketch."""
    tvm = import_tvm()
    text = tvm.ir.save_json(module)
    if workload is None or workload.key == structure_of(module):
        workload = workload or workload_of(module)
        sketch = Sketch(dialect="metaschedule", body=EMPTY_TRACE, slots=())
    else:
        sketch = Sketch(dialect="module", body=text, slots=())
    program = Program(workload=workload, sketch=sketch, decisions=())
    return Candidate(program=program, module=text, origin=origin, split=split)
