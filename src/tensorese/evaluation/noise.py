"""How sure the times are: repeated measurements compared, and what they leave to a ranking."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorese.records.nouns import Status
from tensorese.records.store import Store

P90_LIMIT = 0.05
"""Side by side is allowed where the p90 difference from an isolated run is below this."""
WHOLE, ENOUGH = 40, 10
"""Programs of a task measured twice as a whole, and how many such tasks make a ceiling."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Relative differences of latencies, `|a - b| / b`."""

    n: int
    median: float
    p90: float
    bias: float
    """Median of `a / b - 1`: what is slower on the whole shows here."""

    def to_dict(self) -> dict[str, float]:
        numbers = {name: round(value, 4) for name, value in vars(self).items() if name != "n"}
        return {"n": self.n, **numbers}


def difference(a: Mapping[str, float], b: Mapping[str, float]) -> Difference:
    """Of the programs both have, by id; `b` is what `a` is held against."""
    ratios = np.array([a[key] / b[key] - 1 for key in a.keys() & b.keys()])
    if not len(ratios):
        return Difference(n=0, median=np.nan, p90=np.nan, bias=np.nan)
    off = np.abs(ratios)
    return Difference(
        n=len(ratios),
        median=float(np.median(off)),
        p90=float(np.quantile(off, 0.9)),
        bias=float(np.median(ratios)),
    )


def latencies(store: Store, platform: str, host: str = "") -> dict[str, float]:
    """Median latency of every valid program of a platform, or of one host, by program id."""
    columns = ["program_id", "latency", "host"]
    table = store.table(columns, platform=platform, status=Status.OK)
    samples: dict[str, list[float]] = {}
    for row in table.to_pylist():
        if host and row["host"] != host:
            continue
        samples.setdefault(row["program_id"], []).append(row["latency"])
    return {key: statistics.median(values) for key, values in samples.items()}


def differences_by_host(first: Store, second: Store, platform: str) -> dict[str, Difference]:
    """How far `first` is from the second measurements of every host that took some."""
    label = latencies(first, platform)
    hosts = set(second.table(["host"], platform=platform)["host"].to_pylist())
    differences = {
        host: difference(label, latencies(second, platform, host)) for host in sorted(hosts)
    }
    return {host: off for host, off in differences.items() if off.n}


def tasks_of_programs(store: Store, platform: str) -> dict[str, str]:
    """Workload id of every program."""
    table = store.table(["program_id", "workload_id"], platform=platform)
    return dict(zip(table["program_id"].to_pylist(), table["workload_id"].to_pylist(), strict=True))


def measured_twice(
    label: Mapping[str, float],
    again: Mapping[str, float],
    task_of: Mapping[str, str],
    least: int = 8,
) -> dict[str, list[str]]:
    """Programs with a second time, by task; what a ceiling is the ceiling of.

    The more programs a task has, the more of them look best by luck: where `ENOUGH` tasks were
    measured twice as a whole, they alone count, else all with at least `least` programs.
    """
    groups: dict[str, list[str]] = {}
    for key in sorted(label.keys() & again.keys()):
        groups.setdefault(task_of[key], []).append(key)
    whole = {task: keys for task, keys in groups.items() if len(keys) >= WHOLE}
    if len(whole) >= ENOUGH:
        return whole
    return {task: keys for task, keys in groups.items() if len(keys) >= least}


def top_ratios(
    groups: Mapping[str, Sequence[str]],
    label: Mapping[str, float],
    merit: Mapping[str, float],
    k: int,
) -> dict[str, float]:
    """Best label of a task over the best of the `k` programs of lowest merit, by task."""
    ratios = {}
    for task, keys in groups.items():
        picked = sorted(keys, key=lambda key: merit[key])[:k]
        ratios[task] = min(label[key] for key in keys) / min(label[key] for key in picked)
    return ratios


def oracle_ceiling(
    label: Mapping[str, float],
    again: Mapping[str, float],
    task_of: Mapping[str, str],
    ks: Sequence[int] = (1, 5),
) -> dict[str, float]:
    """Top-k of a ranker that knows the second measurement, judged by the first.

    No model can be expected to do better: what it misses is noise.
    """
    groups = measured_twice(label, again, task_of)
    sizes = [len(keys) for keys in groups.values()]
    result: dict[str, float] = {
        "tasks": float(len(groups)),
        "programs": round(statistics.mean(sizes), 1) if sizes else 0.0,
    }
    for k in ks:
        ratios = top_ratios(groups, label, again, k).values()
        result[f"top{k}"] = round(statistics.mean(ratios), 4) if ratios else float("nan")
    return result


def compare_stores(first: Store, second: Store, platform: str) -> dict[str, Any]:
    """The noise section of a data card: `second` re-measures programs of `first`."""
    label, again = latencies(first, platform), latencies(second, platform)
    return {
        "platform": platform,
        **difference(label, again).to_dict(),
        "oracle": oracle_ceiling(label, again, tasks_of_programs(first, platform)),
    }
