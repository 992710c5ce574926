"""A ranker that needs no training data: it learns each task from the run's own measurements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Floats64, Ints
from tensorese.features.base import FeatureSet, feature_set
from tensorese.features.decisions import emphasis, named_features, table
from tensorese.records.nouns import Measurement, Sketch, Workload
from tensorese.search.proposers.pool import row_keys
from tensorese.search.rankers.gaussian import GaussianProcess, Shape
from tensorese.search.rankers.labels import Names, columns_of, is_label, labels_of, seconds_of

FEW = 8  # labels from which the kernel's shape is learnt
MANY = 256  # labels from which it is learnt no more
MOST = 384  # labels fitted, the best and the latest: a fit grows with their cube
LENT = 192  # labels of other tasks that a task starts from
CHUNK = 8192  # rows scored at once: bounds memory, and stays in the cache
RISK = 0.5  # doublings that a sure failure costs a score: logs hold failures that were no fault
TRUST = 8.0  # how many labels of its own outweigh the prediction from other tasks

Key = tuple[str, str]
"""Workload id and platform."""


class Advice(Protocol):
    """A prior prediction for a task's rows, in doublings of speed."""

    def predict(self, sketch: Sketch, rows: Ints) -> Floats64: ...

    def predict_rows(self, measurements: Sequence[Measurement]) -> Floats64:
        """Of the rows that are about to be learnt from."""
        ...


@dataclass
class _Task:
    """Labels of one task on one platform, and what was learnt from them."""

    measurements: dict[str, Measurement] = field(default_factory=dict)
    names: Names = field(default_factory=dict)
    speed: GaussianProcess | None = None
    risk: GaussianProcess | None = None
    """Of failing, 0 to 1. A model of its own: as slow runs, failures would drown the fast ones."""
    runs: list[Measurement] = field(default_factory=list)
    """Those of the measurements that ran, in the same order."""
    share: float = 1.0
    """How far the prediction from other tasks holds here."""

    def add(self, measurements: Iterable[Measurement]) -> bool:
        new = {m.id: m for m in measurements if is_label(m) and m.id not in self.measurements}
        self.measurements |= new
        self.runs += [m for m in new.values() if seconds_of(m) > 0]
        return bool(new)

    def learn(self, others: Advice | None) -> None:
        runs = _best_and_latest(self.runs)
        failures = [m for m in self.measurements.values() if seconds_of(m) == 0][-MANY:]
        columns = columns_of([*runs, *failures], self.names)
        weights = emphasis(self.names)
        if runs:
            self._learn_speed(runs, columns[: len(runs)], weights, others)
        if failures:
            failed = np.repeat([0.0, 1.0], [len(runs), len(failures)])
            half = 0.5 if not runs else None  # failures alone are worse than what is unknown
            self.risk = GaussianProcess(
                columns, failed, emphasis=weights, mean=half, shape=Shape(noise=0.3)
            )

    def _learn_speed(
        self, runs: list[Measurement], columns: Floats64, weights: Floats64, others: Advice | None
    ) -> None:
        labels = labels_of(runs)
        mean = float(labels.mean())
        if others is not None:
            advised = others.predict_rows(runs)
            # Least squares, drawn towards full agreement as if by `TRUST` labels.
            power = float(np.mean(advised**2)) + 1e-9
            agreed = float(advised @ (labels - mean)) + TRUST * power
            self.share = float(np.clip(agreed / ((len(runs) + TRUST) * power), 0, 1))
            labels = labels - self.share * advised
        shape = Shape() if len(runs) < FEW else None
        if self.speed is not None and len(runs) > MANY:
            shape = self.speed.shape
        self.speed = GaussianProcess(columns, labels, emphasis=weights, mean=mean, shape=shape)


class _Loan:
    """What tasks of the same make say of a row: their labels, each relative to its task's mean."""

    def __init__(self, tasks: Sequence[_Task]) -> None:
        self.names: Names = {}
        each = max(8, LENT // len(tasks))
        lent, labels = [], []
        for task in tasks:
            runs = task.runs
            marks = labels_of(runs)
            order = np.argsort(-marks, kind="stable")
            picked = order[np.unique(np.linspace(0, len(runs) - 1, each).astype(np.int64))]
            lent += [runs[k] for k in picked]
            labels.append(marks[picked] - marks.mean())
        columns = columns_of(lent, self.names)
        self.model = GaussianProcess(
            columns, np.concatenate(labels), emphasis=emphasis(self.names), mean=0.0
        )

    def predict(self, sketch: Sketch, rows: Ints) -> Floats64:
        return self.model.predict(table(named_features(sketch, rows), self.names, len(rows)))[0]

    def predict_rows(self, measurements: Sequence[Measurement]) -> Floats64:
        columns = columns_of(measurements, dict(self.names))[:, : len(self.names)]
        return self.model.predict(columns)[0]


class OnlineRanker:
    """Per task and platform a Gaussian process over the decisions; nothing is pretrained.

    Scores are log2 speed against the task's best, plus `optimism` standard deviations. Before
    anything is known they are arbitrary but fixed. A censored run counts as that slow at least, a
    failure makes rows like it riskier, a fault of the machinery is nothing. With `shared`, a task
    starts from a model of tasks with the same tiles (other shapes of the operator).
    """

    name = "online"
    needs: FeatureSet = feature_set("decisions")

    def __init__(self, *, optimism: float = 0.5, shared: bool = True) -> None:
        self.optimism = optimism
        self.shared = shared
        self._tasks: dict[Key, _Task] = {}
        self._families: dict[tuple[str, tuple[int, ...]], list[Key]] = {}
        self._loans: dict[Key, tuple[int, _Loan]] = {}
        """With the number of labels it was made from."""

    def score(
        self, workload: Workload, platform: str, sketch: Sketch, decisions: npt.ArrayLike
    ) -> npt.NDArray[np.float32]:
        rows: Ints = np.asarray(decisions, dtype=np.int64)
        rows = rows.reshape(len(rows), sketch.n_decisions)
        key = (workload.id, platform)
        pieces = [rows[at : at + CHUNK] for at in range(0, max(1, len(rows)), CHUNK)]
        scores = np.concatenate([self._score(key, sketch, piece) for piece in pieces])
        return scores.astype(np.float32)

    def _score(self, key: Key, sketch: Sketch, rows: Ints) -> Floats64:
        task = self._tasks.get(key, _Task())
        others = self._loan(key, sketch) if task.speed is None else self._made(key)
        named = named_features(sketch, rows)
        columns = table(named, task.names, len(rows))
        scores = (
            _arbitrary(sketch, rows)
            if others is None and task.speed is None
            else np.zeros(len(rows))
        )
        if others is not None:
            scores += task.share * others.predict(sketch, rows)
        if task.speed is not None:
            mean, deviation = task.speed.predict(columns)
            scores += mean + self.optimism * deviation
        if task.risk is not None:
            scores -= RISK * np.clip(task.risk.predict(columns)[0], 0, 1)
        return scores

    def update(self, measurements: Sequence[Measurement]) -> None:
        touched: dict[Key, list[Measurement]] = {}
        for measurement in measurements:
            key = (measurement.program.workload.id, measurement.platform.name)
            touched.setdefault(key, []).append(measurement)
        for key, new in touched.items():
            task = self._tasks.setdefault(key, _Task())
            if task.add(new):
                sketch = new[0].program.sketch
                family = self._families.setdefault((key[1], _make(sketch)), [])
                if key not in family:
                    family.append(key)
                task.learn(self._loan(key, sketch))

    def _made(self, key: Key) -> Advice | None:
        """The advice that the task's own model was fitted on top of."""
        return self._loans[key][1] if key in self._loans else None

    def _loan(self, key: Key, sketch: Sketch) -> Advice | None:
        """What the other tasks of the family say now."""
        if not self.shared:
            return None
        family = self._families.get((key[1], _make(sketch)), [])
        others = [self._tasks[other] for other in family if other != key]
        others = [task for task in others if len(task.runs) >= FEW]
        count = sum(len(task.runs) for task in others)
        if not others:
            return None
        if key not in self._loans or self._loans[key][0] != count:
            self._loans[key] = (count, _Loan(others))
        return self._loans[key][1]


def _make(sketch: Sketch) -> tuple[int, ...]:
    """The parts of its tiles: the same for every shape of an operator."""
    return tuple(length for _, length in sketch.slots if length > 0)


def _best_and_latest(measurements: list[Measurement]) -> list[Measurement]:
    if len(measurements) <= MOST:
        return measurements
    latest, older = measurements[-MOST // 2 :], measurements[: -MOST // 2]
    return sorted(older, key=seconds_of)[: MOST // 2] + latest


def _arbitrary(sketch: Sketch, rows: Ints) -> Floats64:
    """A small fixed number a row, so that nobody takes the first rows for the best ones."""
    keys = row_keys(rows) ^ np.uint64(int(sketch.id, 16))
    return keys / np.float64(2**64) * 1e-3
