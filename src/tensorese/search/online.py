"""A ranker that needs no training data: it learns each task from the run's own measurements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tensorese.records.nouns import Measurement, Sketch, Status, Workload
from tensorese.search.decision_features import Floats, named_features, table
from tensorese.search.gaussian import GaussianProcess, Shape
from tensorese.search.pool import row_keys
from tensorese.space.tiles import Ints

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
WORST = 6.0  # doublings behind the best: beyond that, and for failures, it is all the same
FEW = 8  # labels from which the kernel's shape is learnt
MANY = 256  # labels from which it is learnt no more: a fit grows with their cube
MOST = 384  # labels kept: the best and the latest


@dataclass
class _Task:
    """Labels of one task on one platform, and what was learnt from them."""

    measurements: dict[str, Measurement] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    model: GaussianProcess | None = None

    def add(self, measurements: Iterable[Measurement]) -> bool:
        before = len(self.measurements)
        labels = (m for m in measurements if _seconds(m) > 0 or m.status in FAILURES)
        self.measurements.update((m.id, m) for m in labels)
        return len(self.measurements) > before

    def learn(self) -> None:
        kept = _kept(list(self.measurements.values()))
        seconds = np.array([_seconds(m) for m in kept])
        ran = seconds > 0
        best = seconds[ran].min() if ran.any() else 1.0
        labels = -np.minimum(np.log2(np.where(ran, seconds, np.inf) / best), WORST)
        columns = self._columns(kept)
        shape = Shape() if len(kept) < FEW else None
        if self.model is not None and len(kept) > MANY:
            shape = self.model.shape
        # Failures alone must count as worse than what is unknown, so the mean is not theirs.
        mean = float(labels[ran].mean()) if ran.any() else 0.0
        self.model = GaussianProcess(columns, labels, mean=mean, shape=shape)

    def _columns(self, kept: Sequence[Measurement]) -> Floats:
        by_sketch: dict[str, list[int]] = {}
        for index, measurement in enumerate(kept):
            by_sketch.setdefault(measurement.program.sketch.id, []).append(index)
        parts = []
        for members in by_sketch.values():
            rows = np.array([kept[i].program.decisions for i in members], dtype=np.int64)
            named = named_features(kept[members[0]].program.sketch, rows)
            for name in named:
                self.names.setdefault(name, len(self.names))
            parts.append((members, named))
        columns = np.zeros((len(kept), len(self.names)))
        for members, named in parts:
            columns[members] = table(named, self.names, len(members))
        return columns


class OnlineRanker:
    """Per task and platform a Gaussian process over the decisions; nothing is pretrained.

    Scores are log2 speed against the task's best, plus `optimism` standard deviations. Before
    anything is known they are arbitrary but fixed. Censored runs count as that slow at least,
    failures as the worst, faults of the machinery as nothing.
    """

    name = "online"
    needs = "decisions"

    def __init__(self, *, optimism: float = 0.5) -> None:
        self.optimism = optimism
        self._tasks: dict[tuple[str, str], _Task] = {}

    def score(
        self, workload: Workload, platform: str, sketch: Sketch, decisions: npt.ArrayLike
    ) -> npt.NDArray[np.float32]:
        rows: Ints = np.asarray(decisions, dtype=np.int64)
        rows = rows.reshape(len(rows), sketch.n_decisions)
        task = self._tasks.get((workload.id, platform))
        if task is None or task.model is None:
            return _arbitrary(rows)
        columns = table(named_features(sketch, rows), task.names, len(rows))
        mean, deviation = task.model.predict(columns)
        return (mean + self.optimism * deviation).astype(np.float32)

    def update(self, measurements: Sequence[Measurement]) -> None:
        touched: dict[tuple[str, str], list[Measurement]] = {}
        for measurement in measurements:
            key = (measurement.program.workload.id, measurement.platform.name)
            touched.setdefault(key, []).append(measurement)
        for key, new in touched.items():
            task = self._tasks.setdefault(key, _Task())
            if task.add(new):
                task.learn()


def _seconds(measurement: Measurement) -> float:
    """The label of a run, whole or cut short; 0 for anything else."""
    if measurement.status not in (Status.OK, Status.CENSORED) or not measurement.run_secs:
        return 0.0
    return float(np.median(measurement.run_secs))


def _kept(measurements: list[Measurement]) -> list[Measurement]:
    if len(measurements) <= MOST:
        return measurements
    latest = measurements[-MOST // 2 :]
    older = [m for m in measurements[: -MOST // 2] if _seconds(m) > 0]
    return sorted(older, key=_seconds)[: MOST // 2] + latest


def _arbitrary(rows: Ints) -> npt.NDArray[np.float32]:
    """A small fixed number a row, so that nobody takes the first rows for the best ones."""
    return (row_keys(rows) / np.float64(2**64) * 1e-3).astype(np.float32)
