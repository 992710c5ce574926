"""A run's network again, by the road its tasks came, at every shape; its programs applied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tensorese.deploy.apply import apply_programs, kernels_of, normalised
from tensorese.deploy.built import Built
from tensorese.deploy.errors import DeployError
from tensorese.deploy.folder import TunedRun
from tensorese.identity import workload_of
from tensorese.tvm_env import import_tvm
from tensorese.workloads import load_variants, merged, prepare
from tensorese.workloads.network import Network, checked_inputs
from tensorese.workloads.variants import entry_name

Step = Callable[[str], None]


def prepare_run(run: TunedRun, on_step: Step, *, prepack: bool = True) -> Built:
    """At its only shape, or its first."""
    return prepare_shapes(run, on_step, prepack=prepack)[0]


def prepare_shapes(
    run: TunedRun,
    on_step: Step,
    *,
    prepack: bool = True,
    networks: Sequence[Network] | None = None,
) -> list[Built]:
    """One for each shape, all of the same library. `networks` are the run's, if they were read."""
    on_step(f"preparing {run.network}")
    networks = load_variants(run.model) if networks is None else networks
    if len(networks) == 1:
        (one,) = networks
        networks = [replace(one, given={**one.given, **checked_inputs(one, run.inputs)})]
    modules = [
        prepare(one.module, run.target, prepack=run.prepack, **run.choices) for one in networks
    ]
    whole = merged(modules)
    applied = apply_programs(whole, run.best, run.target, prepack=prepack)
    unknown = set(run.best) - set(applied.workloads)
    if unknown:
        raise DeployError(
            f"every tuned task must be in {run.model}, but {len(unknown)} of {len(run.best)} are "
            f"not ({min(unknown)}); was the model file changed? tune into a new folder"
        )
    return [
        Built(
            run=run if len(networks) == 1 else _at(run, network, module),
            network=network,
            prepared=module,
            whole=whole,
            applied=applied,
            entry=entry_name(at, len(networks)),
            packed=prepack and run.prepack,
            graphs=run.kind == "cuda",
        )
        for at, (network, module) in enumerate(zip(networks, modules, strict=True))
    ]


def _at(run: TunedRun, network: Network, module: Any) -> TunedRun:
    """The run as if for one of its shapes: its tasks weigh what they do there, others nothing."""
    ids = {var: workload_of(normalised(f)).id for var, f in kernels_of(module).items()}
    calls: Counter[str] = Counter()

    def see(node: Any) -> None:
        if str(getattr(getattr(node, "op", None), "name", "")) == "relax.call_tir":
            calls[ids[node.args[0]]] += 1

    import_tvm().relax.analysis.post_order_visit(module["main"], see)
    tasks = tuple({**task, "weight": calls[str(task["workload"])]} for task in run.tasks)
    return replace(run, model=network.source, source=run.model, tasks=tasks)
