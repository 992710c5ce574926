"""TVM's objects by what they are: a module's workload, a trace as plain data."""

from __future__ import annotations

import importlib
from typing import Any

from tensorese.records.nouns import TensorSpec, Workload
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
    """The names of the computing blocks, in order: `pad_conv2d_nhwc_relu`.

    A function written as one opaque block (a sort, a scan) is called by that block's name.
    """
    tvm = import_tvm()
    outer = str(getattr(getattr(module["main"].body, "block", None), "name_hint", ""))
    if outer != "root":
        return outer or "main"
    schedule = tvm.s_tir.Schedule(module)
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    names = [str(schedule.get(block).name_hint) for block in blocks]
    return "_".join(names) or "main"


def plain(value: Any) -> Any:
    """TVM's arrays, strings and numbers as Python's own."""
    if isinstance(value, bool | float) or value is None:
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if hasattr(value, "value"):  # IntImm, FloatImm
        return value.value
    return [plain(item) for item in value]
