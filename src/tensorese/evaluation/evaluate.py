"""A model judged on the workloads of some stores that it was not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tensorese.evaluation.inputs import Inputs, of_tasks
from tensorese.evaluation.judge import judge_scores
from tensorese.evaluation.lowered_programs import NOBODY, Listener
from tensorese.evaluation.metrics import TaskResult, summary
from tensorese.evaluation.networks import network_use, pool
from tensorese.evaluation.splits import check_disjoint
from tensorese.features.programs import DataError, read_programs
from tensorese.models.base import Model, ModelError
from tensorese.records.networks import NetworkUse
from tensorese.records.store import Store


def evaluate_model(
    model: Model,
    stores: Sequence[Store],
    *,
    platform: str | None = None,
    thin: bool = False,
    networks: Path | None = None,
    listener: Listener = NOBODY,
) -> dict[str, Any]:
    """What `tensorese eval --json` prints; see docs/evaluation.md."""
    name = platform or _only_platform(stores, model.platforms)
    model.head_index(name)
    programs = read_programs(stores, platforms=(name,), split="all")
    seen = set(model.card.training_workloads)
    unseen = [k for k, task in enumerate(programs.tasks) if task not in seen]
    check_disjoint(seen, [programs.tasks[k] for k in unseen], programs.workloads)
    judged = of_tasks(programs, unseen)
    inputs = Inputs(judged, stores, listener)
    results = _results(model, inputs, name, thin) if unseen else []
    if not results:
        raise DataError(
            "eval judges unseen workloads with at least five valid programs, but of "
            f"{len(programs.tasks)} workloads on {name} {len(programs.tasks) - len(unseen)} were "
            "trained on and the rest hold fewer; give other records"
        )
    use = _use(stores, judged.tasks, networks)
    pooled = pool(results, use)
    return {
        "platform": name,
        **summary(results),
        "small_tasks": len(unseen) - len(results),
        **pooled.to_dict(judged.workloads, use),
        **{f"random_top{k}_pooled": value for k, value in pooled.random.items()},
    }


def _results(model: Model, inputs: Inputs, platform: str, thin: bool) -> list[TaskResult]:
    programs = inputs.programs
    scores = inputs.scores(model, platform)
    return judge_scores(programs, platform, scores, range(len(programs.tasks)), thin=thin)


def _only_platform(stores: Sequence[Store], known: Sequence[str]) -> str:
    both = sorted(set().union(*(store.platforms() for store in stores)) & set(known))
    if len(both) == 1:
        return both[0]
    if not both:
        raise ModelError(
            f"model and records must share a platform, but the model knows {', '.join(known)}; "
            "give its records"
        )
    raise ModelError(f"eval judges one platform, but {', '.join(both)} fit; name one: --platform")


def _use(stores: Sequence[Store], tasks: Sequence[str], networks: Path | None) -> NetworkUse:
    """By the lists of all stores together."""
    uses = [network_use(store, tasks, networks) for store in stores]
    weights: dict[str, dict[str, float]] = {}
    names: dict[str, str] = {}
    for use in uses:
        names |= use.names
        for network, mine in use.weights.items():
            weights.setdefault(network, {}).update(mine)
    return NetworkUse(weights=weights, names=names)
