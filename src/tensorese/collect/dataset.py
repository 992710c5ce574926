"""From collected stores to a dataset that is shipped: one store, small, with a card in words."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tensorese.collect.tasklist import ListedTask
from tensorese.records.nouns import Measurement, Status, Workload
from tensorese.records.store import Store

LICENCE = "CC BY 4.0"
TIMING = ("cache", "threads", "co_runners")
"""Settings of `Measurement.timing` that a card counts."""


def publish(sources: Sequence[Path], out: Path) -> int:
    """Adds the stores' measurements to `out`; returns how many were new.

    Tails are left out, a replay derives them anew, and so are faults of the machinery and digits
    that no clock is good for, half of the bytes otherwise.
    """
    with Store.open(out, create=True) as store:
        added = store.ingest(_published(sources))
        store.squeeze()
        return added


def _published(sources: Sequence[Path]) -> Iterator[Measurement]:
    for path in sources:
        with Store.open(path) as source:
            for measurement in source.measurements():
                if measurement.status is not Status.INFRA_ERROR:
                    program = replace(measurement.program, tail="")
                    yield replace(
                        _rounded(measurement), program=program, error=measurement.error[:200]
                    )


def _rounded(measurement: Measurement) -> Measurement:
    """Samples to seven digits, the rest to a millisecond: short in binary, which is what packs."""
    timing = dict(measurement.timing)
    if "disturbed" in timing:
        timing["disturbed"] = [float(f"{secs:.5g}") for secs in timing["disturbed"]]
    return replace(
        measurement,
        run_secs=tuple(float(np.float32(secs)) for secs in measurement.run_secs),
        build_secs=_to_millisecond(measurement.build_secs),
        timing=timing,
        time=_to_millisecond(measurement.time),
    )


def _to_millisecond(secs: float) -> float:
    return round(secs * 1024) / 1024 if math.isfinite(secs) else secs


@dataclass(frozen=True, kw_only=True)
class PlatformFacts:
    """What a card says about one platform of a dataset."""

    name: str
    programs: int
    valid: int
    by_status: Mapping[str, int]
    by_origin: Mapping[str, int]
    by_class: Mapping[str, int]
    """Valid training programs by operator class."""
    train_tasks: int
    test_tasks: int
    test_programs: int
    repeats: float
    """Median number of timed samples, disturbed ones counted."""
    verified: int
    toolchain: str
    timing: Mapping[str, Mapping[str, int]]
    """How often each value of the settings in `TIMING` was used, of valid programs."""


def platform_facts(store: Store, platform: str, classes: Mapping[str, str]) -> PlatformFacts:
    """`classes` is the operator class by workload id."""
    table = store.table(platform=platform)
    rows: list[dict[str, Any]] = table.select(
        [*"workload_id status origin split run_secs timing verification toolchain".split()]
    ).to_pylist()
    valid = [row for row in rows if row["status"] == Status.OK]
    train = [row for row in valid if row["split"] != "test"]
    test = [row for row in valid if row["split"] == "test"]
    return PlatformFacts(
        name=platform,
        programs=len(rows),
        valid=len(valid),
        by_status=dict(Counter(row["status"] for row in rows).most_common()),
        by_origin=dict(Counter(row["origin"] for row in rows).most_common()),
        by_class=dict(Counter(classes.get(r["workload_id"], "?") for r in train).most_common()),
        train_tasks=len({row["workload_id"] for row in train}),
        test_tasks=len({row["workload_id"] for row in test}),
        test_programs=len(test),
        repeats=statistics.median([_timed(row) for row in valid] or [0]),
        verified=sum(row["verification"] != "{}" for row in rows),
        toolchain=rows[0]["toolchain"] if rows else "{}",
        timing=_timing(valid),
    )


def _timing(rows: Iterable[Mapping[str, Any]]) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {key: Counter() for key in TIMING}
    for row in rows:
        settings = json.loads(row["timing"])
        for key, counter in counts.items():
            if key in settings:
                counter[str(settings[key])] += 1
    return counts


def _timed(row: Mapping[str, Any]) -> int:
    """Samples that were taken; `run_secs` has those that count."""
    return len(row["run_secs"]) + len(json.loads(row["timing"]).get("disturbed", ()))


def shared_programs(store: Store, platforms: Sequence[str]) -> list[int]:
    """Programs that are valid on one of the platforms or more, on two or more, ... on all."""
    counts: Counter[str] = Counter()
    for platform in platforms:
        table = store.table(["program_id"], platform=platform, status=Status.OK)
        counts.update(set(table["program_id"].to_pylist()))
    by_count = Counter(counts.values())
    return [
        sum(n for count, n in by_count.items() if count >= least)
        for least in range(1, len(platforms) + 1)
    ]


def nearest_train(task: ListedTask, train: Iterable[ListedTask]) -> tuple[ListedTask, float] | None:
    """The training task of the same class whose shapes differ least, in factors of two."""
    same = [other for other in train if other.operator == task.operator and other.kind == task.kind]
    if not same:
        return None
    best = min(same, key=lambda other: (_distance(task, other), other.workload.id))
    return best, _distance(task, best)


def _distance(a: ListedTask, b: ListedTask) -> float:
    """Extents compared in order; what only one of the two has counts in full."""
    mine, theirs = _extents(a.workload), _extents(b.workload)
    longer = max(len(mine), len(theirs))
    pairs = zip(
        mine + [1] * (longer - len(mine)), theirs + [1] * (longer - len(theirs)), strict=True
    )
    return sum(abs(math.log2(x / y)) for x, y in pairs)


def _extents(workload: Workload) -> list[int]:
    return [max(1, extent) for arg in workload.args for extent in arg.shape]
