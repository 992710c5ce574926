"""Top-k as TLP's paper defines it: latencies of all tasks in two sums, weighted by their use.

A mean over tasks counts a copy of a few microseconds like the product that takes half of a
network's time. Here a task counts by what it costs the networks that run it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorese.evaluation.metrics import TaskResult
from tensorese.features.programs import DataError
from tensorese.records.networks import NetworkUse, list_beside, read_networks
from tensorese.records.nouns import Workload
from tensorese.records.store import Store

POOLED = (1, 5, 10)
COSTLY = 5
"""How many of the tasks that cost most are named."""


@dataclass(frozen=True, kw_only=True)
class NetworkResult:
    network: str
    tasks: int
    top: Mapping[int, float]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a network loses by the first choice of one of its tasks."""

    network: str
    """Empty where no list names the task."""
    task: str
    weight: float
    top1: float
    share: float
    """Of all that is lost, over all networks."""


@dataclass(frozen=True, kw_only=True)
class Pooled:
    weighted: bool
    """False: no list names the tasks, each counts once."""
    unlisted: int
    """Judged tasks that the list does not name; they count nothing."""
    top: Mapping[int, float]
    random: Mapping[int, float]
    """Of the expected latencies of a random order."""
    networks: tuple[NetworkResult, ...]
    costs: tuple[Cost, ...]

    def to_dict(self, workloads: Mapping[str, Workload], use: NetworkUse) -> dict[str, Any]:
        """The keys of `--json`: see docs/evaluation.md."""
        networks = [
            {
                "network": one.network,
                "tasks": one.tasks,
                **{f"top{k}": value for k, value in one.top.items()},
            }
            for one in self.networks
        ]
        costs = [
            {
                "network": cost.network,
                "task": cost.task,
                "name": use.names.get(cost.task) or workloads[cost.task].operator,
                "shapes": ["x".join(map(str, arg.shape)) for arg in workloads[cost.task].args],
                "weight": cost.weight,
                "top1": cost.top1,
                "share": cost.share,
            }
            for cost in self.costs
        ]
        return {
            **{f"top{k}_pooled": value for k, value in self.top.items()},
            "weighted": self.weighted,
            "unlisted": self.unlisted,
            "networks": networks,
            "costs": costs,
        }


def network_use(store: Store, workloads: Collection[str], file: Path | None = None) -> NetworkUse:
    """Who uses these workloads: by the file, else by the task list that comes with the store."""
    path = file or list_beside(store.path)
    use = read_networks(path).of(workloads) if path is not None else NetworkUse()
    if file is not None and not use.weights:
        raise DataError(
            f"--networks names workloads of the records, but {file} names none of the "
            f"{len(workloads)} in {store.path}; give their ids, as in tensorese score's output"
        )
    return use


def pool(results: Sequence[TaskResult], use: NetworkUse) -> Pooled:
    """Sum of w * best over sum of w * best among the top k, over all networks and each alone."""
    weights = use.of({result.task for result in results}).weights
    listed = {task for uses in weights.values() for task in uses}
    weighted = bool(weights)
    by_network: Mapping[str, Mapping[str, float]] = weights
    if not weighted:
        by_network = {"": {result.task: 1.0 for result in results}}
    by_task = {result.task: result for result in results}
    uses = [
        (network, weight, by_task[task])
        for network, tasks in sorted(by_network.items())
        for task, weight in tasks.items()
    ]
    total = sum(weight * result.best for _, weight, result in uses)
    return Pooled(
        weighted=weighted,
        unlisted=len(by_task.keys() - listed) if weighted else 0,
        top={k: _top_k([(w, r) for _, w, r in uses], k) for k in POOLED},
        random={k: total / sum(w * r.random_chosen[k] for _, w, r in uses) for k in POOLED},
        networks=tuple(
            NetworkResult(
                network=network,
                tasks=len(tasks),
                top={k: _top_k([(w, by_task[t]) for t, w in tasks.items()], k) for k in POOLED},
            )
            for network, tasks in sorted(weights.items())
        ),
        costs=_costs(uses),
    )


def pooled_ratio(best: Mapping[str, float], ratio: Mapping[str, float], use: NetworkUse) -> float:
    """The same of tasks whose best latency and top-k ratio are known."""
    tasks = use.of(best.keys()).weights or {"": dict.fromkeys(best, 1.0)}
    uses = [(weight, task) for mine in tasks.values() for task, weight in mine.items()]
    chosen = sum(weight * best[task] / ratio[task] for weight, task in uses)
    return sum(weight * best[task] for weight, task in uses) / chosen


def _top_k(uses: Sequence[tuple[float, TaskResult]], k: int) -> float:
    best = sum(weight * result.best for weight, result in uses)
    return best / sum(weight * result.chosen[k] for weight, result in uses)


def _costs(uses: Sequence[tuple[str, float, TaskResult]]) -> tuple[Cost, ...]:
    losses = [weight * (result.chosen[1] - result.best) for _, weight, result in uses]
    total = sum(losses)
    order = sorted(range(len(uses)), key=lambda i: -losses[i])[:COSTLY]
    return tuple(
        Cost(
            network=uses[i][0],
            task=uses[i][2].task,
            weight=uses[i][1],
            top1=uses[i][2].ratio(1),
            share=losses[i] / total,
        )
        for i in order
        if losses[i] > 0
    )
