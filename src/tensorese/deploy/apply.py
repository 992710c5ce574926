"""Puts the chosen programs into a prepared network and packs its weights for them.

Each kernel of the result is, byte for byte, what the measuring farm built and timed: the same
trace on the same workload, with the copy that re-lays a weight cut out. What that copy would
write is computed here once, by numpy, and stored as the constant.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tensorese.deploy.errors import DeployError
from tensorese.deploy.plain import plain_schedule
from tensorese.identity import structure_of, workload_of
from tensorese.records.nouns import Workload, canonical_json
from tensorese.records.run_entries import BestProgram
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm

LAYOUT_COPY = "meta_schedule.layout_rewrite_preproc"


@dataclass(frozen=True, kw_only=True)
class Applied:
    """A module ready to build; the maps say which kernel came from which task."""

    module: Any
    tuned: dict[str, str]
    """Kernel name to workload id, for kernels with a chosen program."""
    untuned: dict[str, str]
    """The same for kernels without: scheduled plainly on a CPU, as TVM does it elsewhere."""
    workloads: dict[str, Workload]
    """Of all kernels, by id."""


def kernels_of(prepared: Any) -> dict[Any, Any]:
    """The TIR functions of a prepared module, by their variables."""
    tvm = import_tvm()
    return {v: f for v, f in prepared.functions.items() if isinstance(f, tvm.tirx.PrimFunc)}


def normalised(function: Any) -> Any:
    """The module that a task of this kernel has: one function `main`, as TVM's database sees it."""
    tvm = import_tvm()
    if "global_symbol" not in (function.attrs or {}):
        function = function.with_attr("global_symbol", "main")
    return tvm.IRModule({"main": function.with_attr("tirx.noalias", True)})


def scheduled_module(best: BestProgram, workload: Any, target: str, *, prepack: bool = True) -> Any:
    """The program's TIR, with or without the copies that re-lay its weights.

    A program recorded without its postprocessing tail is postprocessed here.
    """
    jobs = importlib.import_module("tensorese.measure.jobs")
    worker = importlib.import_module("tensorese.measure.build_worker")
    whole = best.sketch.body if best.sketch.dialect == "module" else ""
    trace = "" if whole else jobs.trace_of(best.program(workload), Target.from_json(target))
    if trace and not prepack:
        trace = without_layouts(trace)
    job = {
        "target": target,
        "module": whole,
        "workload": workload.module,
        "trace": trace,
        "postprocess": bool(trace) and not best.tail,
    }
    try:
        return worker.load_module(job)
    except Exception as error:
        raise DeployError(
            f"the best program of {best.name} ({workload.id}) must replay, but TVM refuses it: "
            f"{worker.short(error)[:300]}; was it recorded by another TVM?"
        ) from None


def without_layouts(trace: str) -> str:
    """The trace less what `RewriteLayout` added: a marked copy and a new layout, each time."""
    instructions, decisions = json.loads(trace)
    copies = {i[1][0] for i in instructions if i[0] == "Annotate" and i[2] == [LAYOUT_COPY]}
    kept: list[Any] = []
    old_to_new: dict[int, int] = {}
    dropping = False
    for index, instruction in enumerate(instructions):
        kind, inputs, _, outputs = instruction
        names = [name for name in [*inputs, *outputs] if isinstance(name, str)]
        mentions = kind in ("CacheRead", "Annotate") and bool(copies.intersection(names))
        dropped = mentions or (dropping and kind == "TransformLayout")
        dropping = mentions
        if not dropped:
            old_to_new[index] = len(kept)
            kept.append(instruction)
    decided = [[old_to_new[at], value] for at, value in decisions if at in old_to_new]
    return canonical_json([kept, decided])


def apply_programs(
    prepared: Any, best: Mapping[str, BestProgram], target: str, *, prepack: bool = True
) -> Applied:
    """`prepared` with every kernel that has a program scheduled by it, the others plainly.

    Without `prepack` kernels read the weights in the order the network has them.
    """
    cpu = json.loads(target)["kind"] == "llvm"
    kernels: dict[Any, Kernel] = {}
    workloads: dict[str, Workload] = {}
    names = Applied(module=prepared, tuned={}, untuned={}, workloads=workloads)
    for var, function in kernels_of(prepared).items():
        workload = workload_of(normalised(function))
        workloads[workload.id] = workload
        chosen = best.get(workload.id)
        if chosen is not None:
            scheduled = scheduled_module(chosen, workload, target, prepack=prepack)
            kernels[var] = Kernel(workload.id, scheduled, names.tuned)
        elif cpu:
            scheduled = plain_schedule(normalised(function))
            kernels[var] = Kernel(workload.id, scheduled, names.untuned)
        else:
            names.untuned[str(var.name_hint)] = workload.id
    return replace(names, module=_rewritten(prepared, kernels))


class Kernel:
    """One scheduled kernel, its weight copies cut out, and how to do them beforehand."""

    def __init__(self, workload_id: str, scheduled: Any, names: dict[str, str]) -> None:
        self.workload_id = workload_id
        self.scheduled = scheduled
        self.names = names
        """Where it enters the name it gets."""
        transform = importlib.import_module("tvm.s_tir.transform")
        cut = transform.RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)
        bare = cut(scheduled)
        self.packs = structure_of(bare) != structure_of(scheduled)
        self.function = _plain(bare["main"])

    def packed(self, arguments: list[Any]) -> list[Any]:
        """A call's arguments with constant weights in the order the kernel reads them."""
        if not self.packs:
            return arguments
        tvm = import_tvm()
        reference = importlib.import_module("tensorese.measure.reference")
        arrays = [_array(tvm, argument) for argument in arguments]
        relaid = reference.relayout_inputs(self.scheduled, arrays)
        made = list(arguments)
        for at, (old, new) in enumerate(zip(arrays, relaid, strict=True)):
            if new is not old:
                if not isinstance(arguments[at], tvm.ir.GenericConst):
                    raise DeployError("only constant weights may be re-laid, but one is computed")
                made[at] = tvm.relax.const(np.ascontiguousarray(new), str(arguments[at].ty.dtype))
        return made


def _array(tvm: Any, argument: Any) -> Any:
    """A constant's values; for anything else zeros of its shape that take no memory."""
    if isinstance(argument, tvm.ir.GenericConst):
        return argument.value.numpy()
    shape = [int(extent) for extent in argument.ty.shape]
    dtypes = importlib.import_module("tensorese.measure.reference.expressions")
    return np.broadcast_to(np.zeros((), dtypes.np_dtype(str(argument.ty.dtype))), shape)


def _plain(function: Any) -> Any:
    """Made anew, because TVM's passes keep the type of parameters they have just changed."""
    tvm = import_tvm()
    if "global_symbol" in (function.attrs or {}):
        function = function.without_attr("global_symbol")
    function = function.with_attr("tirx.is_scheduled", True)  # dlight leaves such kernels alone
    return tvm.tirx.PrimFunc(
        function.params, function.body, function.ret_type, attrs=function.attrs
    )


def _rewritten(prepared: Any, kernels: Mapping[Any, Kernel]) -> Any:
    """The module that calls the new kernels on packed weights."""
    relax = import_tvm().relax
    made: dict[Any, Any] = {}

    @relax.expr_functor.mutator
    class Caller(relax.PyExprMutator):  # type: ignore[misc, name-defined]
        def visit_call_(self, call: Any) -> Any:
            is_kernel = str(getattr(call.op, "name", "")) == "relax.call_tir"
            if not is_kernel or call.args[0] not in kernels:
                return call
            old, arguments = call.args[0], list(call.args[1].fields)
            if old not in made:
                kernel = kernels[old]
                made[old] = self.builder_.add_func(kernel.function, f"{old.name_hint}_scheduled")
                kernel.names[str(made[old].name_hint)] = kernel.workload_id
            packed = relax.Tuple(kernels[old].packed(arguments))
            operands = [made[old], packed, *call.args[2:]]
            return relax.Call(call.op, operands, call.attrs, call.ty_args)

    caller = Caller(prepared)
    for var, function in prepared.functions.items():
        if isinstance(function, relax.Function):
            caller.builder_.update_func(var, caller.visit_expr(function))
    return relax.transform.DeadCodeElimination()(caller.builder_.get())
