"""Which networks use a workload, and how often: a task list, or a JSON file.

JSON is `{"network": {"workload id": weight}}`, or `{"network": ["workload id"]}` for weights of 1.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tensorese.errors import TensoreseError

LIST = "tasks.parquet"
"""A task list of this name in a store, or beside it, is of the store's records."""


class NetworksError(TensoreseError):
    """A list of networks that cannot be read."""


@dataclass(frozen=True, kw_only=True)
class NetworkUse:
    weights: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By network: how often it runs each workload, by workload id."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What the list calls a workload, by id; shorter than the operator of its blocks."""

    def of(self, workloads: Collection[str]) -> Self:
        """The entries of these workloads, without the networks that use none of them."""
        mine = {
            network: {key: weight for key, weight in uses.items() if key in workloads}
            for network, uses in self.weights.items()
        }
        return type(self)(
            weights={network: uses for network, uses in mine.items() if uses}, names=self.names
        )


def list_beside(store: Path) -> Path | None:
    """The task list that comes with a store."""
    return next((p / LIST for p in (store, store.parent) if (p / LIST).is_file()), None)


def read_networks(path: Path) -> NetworkUse:
    if not path.is_file():
        raise NetworksError(
            f"networks are a task list or a JSON file, but {path} is no file; name one"
        )
    if path.read_bytes()[:4] == b"PAR1":
        return _from_list(path)
    try:
        return NetworkUse(
            weights={
                str(name): _weights(uses) for name, uses in json.loads(path.read_text()).items()
            }
        )
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise NetworksError(
            'networks are a task list or JSON, {"network": {"workload id": weight}}, but '
            f"{path} is neither; correct it"
        ) from error


def _weights(uses: Any) -> dict[str, float]:
    if isinstance(uses, list):
        return {str(key): 1.0 for key in uses}
    weights = {str(key): float(weight) for key, weight in uses.items()}
    if not all(0.0 < weight < float("inf") for weight in weights.values()):
        raise ValueError("a weight counts the uses of a workload")
    return weights


def _from_list(path: Path) -> NetworkUse:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path, columns=["id", "name", "networks"]).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise NetworksError(
            f"a task list has the columns id, name and networks, but {path} has not; "
            "write one with tensorese collect --list"
        ) from error
    weights: dict[str, dict[str, float]] = {}
    for row in rows:
        for network, weight in json.loads(row["networks"]):
            weights.setdefault(str(network), {})[row["id"]] = float(weight)
    return NetworkUse(weights=weights, names={row["id"]: row["name"] for row in rows})
