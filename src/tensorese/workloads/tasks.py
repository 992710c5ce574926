"""A network's tasks on a target: every distinct subgraph once, weighted by its occurrences."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tensorese.identity import workload_of
from tensorese.records.task import Task
from tensorese.tvm_env import import_tvm
from tensorese.workloads.choice import Choice
from tensorese.workloads.errors import NetworkError
from tensorese.workloads.fixed_kernels import is_fixed
from tensorese.workloads.joined_channels import is_join
from tensorese.workloads.network import Network
from tensorese.workloads.operators import operator_class
from tensorese.workloads.prepare import prepare

# Calls a prepared function may keep: they only pass memory on.
_PLUMBING = ("relax.call_", "relax.shape", "relax.memory", "relax.builtin", "relax.reshape")


def tasks_of(
    network: Network,
    target: str,
    *,
    prepack: bool = True,
    winograd: bool | Choice = False,
    attention: bool | Choice = False,
    fixed: bool = False,
) -> list[Task]:
    """The tasks of `prepare(network.module, target)`, costliest share of the FLOPs first.

    Of kernels with one schedule there is nothing to decide: they are left out, unless somebody
    wants to know of the `fixed` ones too.
    """
    tvm = import_tvm()  # no kernel is made here: no intrinsics of the target are needed
    prepared = prepare(
        network.module, target, prepack=prepack, winograd=winograd, attention=attention
    )
    _check_lowered(tvm, network.name, prepared["main"])
    from tvm.s_tir.meta_schedule.relax_integration import extract_tasks

    extracted = extract_tasks(prepared, tvm.target.Target(json.loads(target)))
    modules = [task.dispatched[0] for task in extracted]
    open_ = [
        task
        for task, module in zip(extracted, modules, strict=True)
        if not is_join(module) and (fixed or not is_fixed(module))
    ]
    tasks = [_task(tvm, task, target) for task in open_]
    return sorted(tasks, key=lambda task: (-task.weight * task.flops, task.name))


def tasks_of_all(
    networks: Sequence[Network],
    target: str,
    *,
    prepack: bool = True,
    winograd: bool | Choice = False,
    attention: bool | Choice = False,
    fixed: bool = False,
) -> list[Task]:
    """The tasks of a network at several shapes; what they have in common is there once, with the
    weights of all."""
    together: dict[str, Task] = {}
    for network in networks:
        for task in tasks_of(
            network,
            target,
            prepack=prepack,
            winograd=winograd,
            attention=attention,
            fixed=fixed,
        ):
            before = together.get(task.workload.id)
            weight = task.weight + (before.weight if before else 0)
            together[task.workload.id] = replace(task, weight=weight)
    return sorted(together.values(), key=lambda task: (-task.weight * task.flops, task.name))


def _task(tvm: Any, extracted: Any, target: str) -> Task:
    module = extracted.dispatched[0]
    return Task(
        name=_readable(str(extracted.task_name)),
        operator=operator_class(module),
        workload=workload_of(module),
        target=target,
        weight=int(extracted.weight),
        flops=float(tvm.s_tir.analysis.estimate_tir_flops(module)),
        module=module,
    )


def _readable(name: str) -> str:
    """TVM numbers the functions of a module: `fused_conv2d1_tir_tanh3` is `conv2d_tanh`."""
    parts = name.removeprefix("fused_").split("_")
    return "_".join(part.rstrip("0123456789") or part for part in parts if part != "tir")


def _check_lowered(tvm: Any, name: str, function: Any) -> None:
    """TVM leaves an operator it cannot lower as it is, without a word."""
    left: set[str] = set()

    def see(node: Any) -> None:
        operator = str(getattr(getattr(node, "op", None), "name", ""))
        if operator.startswith("relax.") and not operator.startswith(_PLUMBING):
            left.add(operator)

    tvm.relax.analysis.post_order_visit(function, see)
    if left:
        raise NetworkError(f"TVM cannot lower {', '.join(sorted(left))}, which {name} uses")
