"""Which workloads are held out. A workload is held out on every platform or on none."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tensorese.errors import TensoreseError
from tensorese.records.nouns import Workload, content_id

FOLDS = 5


class LeakError(TensoreseError):
    """A workload stands on both sides of a split."""


def by_workload(
    workloads: Mapping[str, Workload], *, folds: int = FOLDS, seed: int = 0
) -> dict[str, int]:
    """Workload id to fold. Operators are dealt out evenly; twins on two platforms share an id."""
    if folds < 2:
        raise ValueError(f"folds must be at least 2, got {folds}")

    def place(item: tuple[str, Workload]) -> tuple[str, str]:
        return item[1].operator, content_id("fold", str(seed), item[0])

    ordered = sorted(workloads.items(), key=place)
    return {name: k % folds for k, (name, _) in enumerate(ordered)}


def by_operator(workloads: Mapping[str, Workload], *, folds: int = FOLDS) -> dict[str, int]:
    """All workloads of an operator in one fold; folds are filled smallest first."""
    counts: dict[str, int] = {}
    for workload in workloads.values():
        counts[workload.operator] = counts.get(workload.operator, 0) + 1
    load = [0] * folds
    place: dict[str, int] = {}
    for operator, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        place[operator] = load.index(min(load))
        load[place[operator]] += count
    return {name: place[workload.operator] for name, workload in workloads.items()}


def by_network(networks: Mapping[str, Collection[str]], held_out: str) -> dict[str, int]:
    """0: held out, 1: training. What the held-out network uses is out wherever else it occurs."""
    return {name: int(held_out not in where) for name, where in networks.items()}


def check_disjoint(
    train: Collection[str], test: Collection[str], workloads: Mapping[str, Workload]
) -> None:
    """Raises when a workload, or one of equal content under another id, is on both sides."""
    canonical = {workloads[name].id if name in workloads else name for name in train}
    for name in test:
        same = workloads[name].id if name in workloads else name
        if name in train or same in canonical:
            raise LeakError(
                f"a held-out workload takes no part in training, but {name} is on both sides; "
                "split by workload and hold out every platform's records of it"
            )
