"""A ranker that also minds what a program costs to build.

On a CPU most of a trial's time is LLVM's, and what takes long to compile is seldom fast: of the
convolutions, depthwise ones and softmaxes looked at, no program near the best took longer to
build than the median, while explicit unrolling by 512 took two to four times as long. So among
programs of like promise the cheap ones come first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Floats64, Ints
from tensorese.features.decisions import named_features, table
from tensorese.records.nouns import Measurement, Sketch, Workload
from tensorese.search.contracts import Ranker

_WEIGHT = 0.2  # doublings of speed that a doubling of the build time outweighs
_ENOUGH = 12  # builds from which a task's own are believed
_RIDGE = 4.0
_UNROLL = "SampleCategorical 0"
_HARMLESS = 6.5  # log2 of an unrolling (64) that costs next to nothing


@dataclass
class _Builds:
    """Build times of one task, and a linear model of how they differ from the guess."""

    rows: dict[Sketch, list[tuple[int, ...]]] = field(default_factory=dict)
    secs: dict[Sketch, list[float]] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)
    weights: Floats64 | None = None

    def add(self, measurement: Measurement) -> None:
        sketch = measurement.program.sketch
        self.rows.setdefault(sketch, []).append(measurement.program.decisions)
        self.secs.setdefault(sketch, []).append(measurement.build_secs)

    def fit(self) -> None:
        parts = [(named_features(s, np.array(r, dtype=np.int64)), len(r)) for s, r in self._items()]
        for named, _ in parts:
            for name in named:
                self.names.setdefault(name, len(self.names))
        x = np.vstack([table(named, self.names, n) for named, n in parts])
        guessed = np.concatenate([_guess(named, n) for named, n in parts])
        y = np.log2(np.concatenate([self.secs[sketch] for sketch, _ in self._items()])) - guessed
        if len(y) < _ENOUGH:
            return
        centred = x - x.mean(0)
        gram = centred.T @ centred + _RIDGE * np.eye(x.shape[1])
        self.weights = np.linalg.solve(gram, centred.T @ (y - y.mean()))

    def _items(self) -> list[tuple[Sketch, list[tuple[int, ...]]]]:
        return list(self.rows.items())

    def cost(self, sketch: Sketch, rows: Ints) -> Floats64:
        """Doublings, up to a constant of the task."""
        named = named_features(sketch, rows)
        costs = _guess(named, len(rows))
        if self.weights is not None:
            costs = costs + table(named, self.names, len(rows)) @ self.weights
        return costs


def _guess(named: Mapping[str, Floats64], n: int) -> Floats64:
    """What is believed before, and corrected by, what is measured: heavy unrolling costs."""
    guessed: Floats64 = np.maximum(named.get(_UNROLL, np.zeros(n)) - _HARMLESS, 0.0) / 2
    return guessed


def guessed_cost(sketch: Sketch, rows: Ints) -> Floats64:
    """What a ranker's scores are lowered by before anything of the task was built."""
    return _WEIGHT * _Builds().cost(sketch, rows)


class BuildCostRanker:
    """Takes predicted build time off another ranker's scores; it learns from every measurement."""

    def __init__(self, ranker: Ranker) -> None:
        self.ranker = ranker
        self.name = ranker.name
        self.needs = ranker.needs
        self._builds: dict[str, _Builds] = {}

    def score(
        self, workload: Workload, platform: str, sketch: Sketch, decisions: npt.ArrayLike
    ) -> npt.NDArray[np.float32]:
        scores = self.ranker.score(workload, platform, sketch, decisions)
        rows = np.asarray(decisions, dtype=np.int64).reshape(len(scores), sketch.n_decisions)
        costs = self._builds.get(workload.id, _Builds()).cost(sketch, rows)
        return (scores - _WEIGHT * costs).astype(np.float32)

    def update(self, measurements: Sequence[Measurement]) -> None:
        self.ranker.update(measurements)
        touched = {}
        for measurement in measurements:
            if math.isfinite(measurement.build_secs) and measurement.build_secs > 0:
                builds = self._builds.setdefault(measurement.program.workload.id, _Builds())
                builds.add(measurement)
                touched[measurement.program.workload.id] = builds
        for builds in touched.values():
            builds.fit()
