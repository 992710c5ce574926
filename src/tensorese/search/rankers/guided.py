"""Rankers that start from a trained model and go on learning from the run.

The model's prediction is the mean that each task's Gaussian process starts from; the process
learns what the model gets wrong, and how much of it holds here. Where it ranks the run's own
programs worse than a ranker without a model would, that one takes over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Floats64, Ints
from tensorese.models.base import Model
from tensorese.records.nouns import Measurement, Sketch, Workload
from tensorese.search.rankers.blas import one_thread
from tensorese.search.rankers.labels import seconds_of
from tensorese.search.rankers.online import Advice, Key, OnlineRanker

LOWEST = -6.0  # doublings: beyond that it is all the same, see labels
DOUBT = 0.5  # standard deviations of the voters that their mean is lowered by
SURE = 2.0  # standard deviations by which the other must be ahead
ENOUGH = 40  # pairs that the two order differently, from which they are compared


FeatureSource: TypeAlias = Callable[[Model, Workload, Sketch, Ints], Any]
"""What a model reads of rows of a sketch: computed here, or by the farm's warm workers."""


def read_here(model: Model, workload: Workload, sketch: Sketch, rows: Ints) -> Any:
    return model.read(workload, sketch, rows)


def read_lowered(lowered: Callable[[Workload, Sketch, Ints], Any]) -> FeatureSource:
    """Rows of lowered programs from there, everything else computed here."""

    def read(model: Model, workload: Workload, sketch: Sketch, rows: Ints) -> Any:
        here = not model.needs.lowers
        return read_here(model, workload, sketch, rows) if here else lowered(workload, sketch, rows)

    return read


class _Prior:
    """What the model says of one task, centred on what the run has measured of it."""

    def __init__(
        self, model: Model, head: str, workload: Workload, features: FeatureSource
    ) -> None:
        self.model, self.head, self.workload = model, head, workload
        self.features = features
        self.centre = 0.0
        self._said: dict[str, float] = {}
        """Of programs that were learnt from: every batch is learnt with all before it."""

    def _speed(self, sketch: Sketch, rows: Ints) -> Floats64:
        inputs = self.features(self.model, self.workload, sketch, rows)
        with one_thread():
            each = self.model.speeds(inputs, self.head).astype(np.float64)
        # A search finds what a model overrates: where its voters disagree it is believed less.
        return np.asarray(np.maximum(each.mean(1) - DOUBT * each.std(1), LOWEST))

    def predict(self, sketch: Sketch, rows: Ints) -> Floats64:
        return self._speed(sketch, rows) - self.centre

    def predict_rows(self, measurements: Sequence[Measurement]) -> Floats64:
        new = [m for m in measurements if m.program.id not in self._said]
        for sketch, members in _by_sketch(new):
            rows = np.array([m.program.decisions for m in members], dtype=np.int64)
            names = (m.program.id for m in members)
            self._said.update(zip(names, self._speed(sketch, rows).tolist(), strict=True))
        speeds = np.array([self._said[m.program.id] for m in measurements])
        self.centre = float(speeds.mean())
        return speeds - self.centre


class GuidedRanker(OnlineRanker):
    """The online ranker with a trained model's prediction as the mean it starts from."""

    def __init__(
        self,
        model: Model,
        head: str,
        *,
        optimism: float = 0.5,
        features: FeatureSource = read_here,
    ) -> None:
        super().__init__(optimism=optimism, shared=False)
        model.head_index(head)
        self.name = f"guided:{model.hash}"
        self.needs = model.needs
        self.model, self.head, self.features = model, head, features
        self._priors: dict[Key, _Prior] = {}

    def score(
        self, workload: Workload, platform: str, sketch: Sketch, decisions: npt.ArrayLike
    ) -> npt.NDArray[np.float32]:
        self._know(workload, platform)
        return super().score(workload, platform, sketch, decisions)

    def update(self, measurements: Sequence[Measurement]) -> None:
        for measurement in measurements:
            self._know(measurement.program.workload, measurement.platform.name)
        super().update(measurements)

    def _know(self, workload: Workload, platform: str) -> None:
        if (workload.id, platform) not in self._priors:
            prior = _Prior(self.model, self.head, workload, self.features)
            self._priors[workload.id, platform] = prior

    def _loan(self, key: Key, sketch: Sketch) -> Advice | None:
        return self._priors[key]

    def _made(self, key: Key) -> Advice | None:
        return self._priors[key]


class Contest:
    """Two rankers on the same programs: of the pairs they order differently, who is right?"""

    def __init__(self) -> None:
        self.first = 0
        self.second = 0

    def add(self, first: Floats64, second: Floats64, seconds: Floats64) -> None:
        faster = seconds[:, None] < seconds[None, :]
        ahead, other = (np.sign(s[:, None] - s[None, :])[faster] for s in (first, second))
        self.first += int(((ahead > 0) & (other < 0)).sum())
        self.second += int(((ahead < 0) & (other > 0)).sum())

    @property
    def second_is_ahead(self) -> bool:
        """Significantly: pairs share programs, hence the margin of two deviations."""
        total = self.first + self.second
        return total >= ENOUGH and self.second - self.first > SURE * math.sqrt(total)


class AutoRanker:
    """A guided ranker that steps aside for a plain one when that is ahead on this run."""

    def __init__(self, guided: OnlineRanker, plain: OnlineRanker | None = None) -> None:
        self.guided = guided
        self.needs = guided.needs
        self.plain = plain or OnlineRanker()
        self.name = guided.name
        self.contests: dict[str, Contest] = {}
        """By platform."""

    def steps_aside(self, platform: str) -> bool:
        return platform in self.contests and self.contests[platform].second_is_ahead

    def score(
        self, workload: Workload, platform: str, sketch: Sketch, decisions: npt.ArrayLike
    ) -> npt.NDArray[np.float32]:
        ranker = self.plain if self.steps_aside(platform) else self.guided
        return ranker.score(workload, platform, sketch, decisions)

    def update(self, measurements: Sequence[Measurement]) -> None:
        """Both score the new programs before they learn from them."""
        for group in _by_task(measurements):
            if len(group) > 1:
                first, second = (_scores(r, group) for r in (self.guided, self.plain))
                contest = self.contests.setdefault(group[0].platform.name, Contest())
                contest.add(first, second, np.array([seconds_of(m) for m in group]))
        self.guided.update(measurements)
        self.plain.update(measurements)


def _by_task(measurements: Sequence[Measurement]) -> list[list[Measurement]]:
    """Runs of one task and platform together."""
    groups: dict[Key, list[Measurement]] = {}
    for m in measurements:
        if seconds_of(m) > 0:
            groups.setdefault((m.program.workload.id, m.platform.name), []).append(m)
    return list(groups.values())


def _scores(ranker: OnlineRanker, group: Sequence[Measurement]) -> Floats64:
    predicted: dict[str, float] = {}
    for sketch, members in _by_sketch(group):
        first, rows = members[0], [m.program.decisions for m in members]
        scores = ranker.score(first.program.workload, first.platform.name, sketch, rows)
        names = (m.id for m in members)
        predicted.update(zip(names, scores.tolist(), strict=True))
    return np.array([predicted[m.id] for m in group])


def _by_sketch(measurements: Sequence[Measurement]) -> list[tuple[Sketch, list[Measurement]]]:
    groups: dict[str, list[Measurement]] = {}
    for m in measurements:
        groups.setdefault(m.program.sketch.id, []).append(m)
    return [(members[0].program.sketch, members) for members in groups.values()]
