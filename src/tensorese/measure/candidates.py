"""From TVM's objects to candidates: a schedule or a module, named by what it computes."""

from __future__ import annotations

import importlib
import json
from typing import Any

from tensorese.language.metaschedule import split_trace
from tensorese.measure.base import Candidate
from tensorese.measure.jobs import EMPTY_TRACE
from tensorese.records.nouns import Program, Sketch, TensorSpec, Workload
from tensorese.tvm_env import import_tvm


def workload_of(module: Any) -> Workload:
    """The canonical workload of an unscheduled module with one function, `main`.

    Its structure enters the id through TVM's structural hash, which ignores variable names.
    """
    tvm = import_tvm()
    types = [param.ty for param in module["main"].params]
    args = tuple(
        TensorSpec(shape=tuple(int(extent) for extent in ty.shape), dtype=str(ty.dtype))
        for ty in types
    )
    structure = structure_of(module)
    return Workload(
        operator=operator_name(module),
        args=args,
        attributes={"structure": structure},
        source="tvm",
        key=structure,
        module=tvm.ir.save_json(module),
    )


def structure_of(module: Any) -> str:
    """TVM's structural hash, the one a MetaSchedule database stores; equal on every machine."""
    ffi: Any = importlib.import_module("tvm_ffi")
    return str(ffi.structural_hash(module))


def operator_name(module: Any) -> str:
    """The names of the computing blocks, in order: `pad_conv2d_nhwc_relu`."""
    tvm = import_tvm()
    schedule = tvm.s_tir.Schedule(module)
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    names = [str(schedule.get(block).name_hint) for block in blocks]
    return "_".join(names) or "main"


def from_schedule(
    schedule: Any, workload: Workload, *, origin: str = "", split: str = ""
) -> Candidate:
    """A schedule of `workload`, identified by the decisions its trace really holds."""
    tvm = import_tvm()
    trace = json.loads(json.dumps(_plain(schedule.trace.as_json())))
    body, slots, decisions, tail = split_trace(trace)
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


def _plain(value: Any) -> Any:
    """TVM's arrays, strings and integers as Python's own."""
    if value is None or isinstance(value, str | bool | float):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, int):
        return int(value)
    if hasattr(value, "value"):  # IntImm, FloatImm
        return value.value
    return [_plain(item) for item in value]
