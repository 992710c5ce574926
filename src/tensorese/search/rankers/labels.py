"""What a measurement teaches: doublings behind the task's best, 0 at the best."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np

from tensorese.arrays import Floats64
from tensorese.features.decisions import named_features, table
from tensorese.records.nouns import Measurement, Status

Names = dict[str, int]

FAILURES = frozenset(
    {
        Status.INVALID,
        Status.BUILD_ERROR,
        Status.BUILD_TIMEOUT,
        Status.RUN_ERROR,
        Status.RUN_TIMEOUT,
        Status.WRONG_OUTPUT,
    }
)
WORST = 6.0  # doublings behind the best: beyond that it is all the same


def seconds_of(measurement: Measurement) -> float:
    """Of a run, whole or cut short (then it is that slow at least); 0 for anything else."""
    if measurement.status not in (Status.OK, Status.CENSORED) or not measurement.run_secs:
        return 0.0
    return max(0.0, float(statistics.median(measurement.run_secs)))


def is_label(measurement: Measurement) -> bool:
    """A fault of the machinery says nothing about the program."""
    return seconds_of(measurement) > 0 or measurement.status in FAILURES


def labels_of(measurements: Sequence[Measurement]) -> Floats64:
    """Labels of runs of one task, at most 0."""
    seconds = np.array([seconds_of(m) for m in measurements])
    labels: Floats64 = -np.minimum(np.log2(seconds / seconds.min()), WORST)
    return labels


def columns_of(measurements: Sequence[Measurement], names: Names) -> Floats64:
    """Features `[n, len(names)]`; names not met before are added to `names`."""
    by_sketch: dict[str, list[int]] = {}
    for index, measurement in enumerate(measurements):
        by_sketch.setdefault(measurement.program.sketch.id, []).append(index)
    parts = []
    for members in by_sketch.values():
        rows = np.array([measurements[i].program.decisions for i in members], dtype=np.int64)
        named = named_features(measurements[members[0]].program.sketch, rows)
        for name in named:
            names.setdefault(name, len(names))
        parts.append((members, named))
    columns = np.zeros((len(measurements), len(names)))
    for members, named in parts:
        columns[members] = table(named, names, len(members))
    return columns
