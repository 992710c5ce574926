"""What a model costs: its training, what it reads, its scores, its folder."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tensorese.evaluation.inputs import of_tasks
from tensorese.evaluation.lowered_programs import replayable, target_for
from tensorese.features.programs import ProgramSet
from tensorese.models.base import Model
from tensorese.records.nouns import Program
from tensorese.records.store import Store

TRAINING = "training_seconds"
"""Of a card's metrics."""
_TASKS = 4  # that features are timed on
_LOWERED = 96
_SECONDS = 0.3  # of scoring, at least


@dataclass(frozen=True, kw_only=True)
class Costs:
    training_seconds: float | None
    """As the model's card says."""
    feature_us: float
    """Microseconds of one core to see a program of a task as the model does; of one that reads
    lowered programs, those of lowering it."""
    scores_a_second: float
    """Of programs whose features are there."""
    bytes: int
    """Of the folder."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def costs_of(
    model: Model, folder: Path, programs: ProgramSet, store: Store, platform: str, inputs: Any
) -> Costs:
    """`inputs` are the model's of these programs."""
    secs = _feature_seconds(model, programs, store)
    trained = model.card.metrics.get(TRAINING)
    return Costs(
        training_seconds=None if trained is None else float(trained),
        feature_us=round(1e6 * secs, 1),
        scores_a_second=round(len(programs) / _timed(lambda: model.rank(inputs, platform))),
        bytes=sum(path.stat().st_size for path in folder.iterdir() if path.is_file()),
    )


def _feature_seconds(model: Model, programs: ProgramSet, store: Store) -> float:
    if model.needs.lowers:
        return _lowering_seconds(programs, store)
    largest = np.argsort(-np.bincount(programs.task, minlength=len(programs.tasks)))
    some = of_tasks(programs, largest[:_TASKS].tolist())
    return _timed(lambda: model.read_all(some)) / len(some)


def _lowering_seconds(programs: ProgramSet, store: Store) -> float:
    """By one warm worker, whose first programs warm it up."""
    from tensorese.measure.lowering import lower_programs, lowering_farm

    each = list(replayable(programs, np.arange(len(programs)) % 7 == 0))[: 2 * _LOWERED]
    if not each:
        return float("nan")
    target = target_for(programs, [store])
    with tempfile.TemporaryDirectory() as folder, lowering_farm(target, workers=1) as farm:

        def lower(some: list[Program]) -> float:
            started = time.perf_counter()
            lower_programs(folder, some, target, farm=farm)
            return time.perf_counter() - started

        lower(each[::2])
        rest = each[1::2] or each
        return lower(rest) / len(rest)


def _timed(work: Callable[[], Any]) -> float:
    """Seconds, the mean of as many times as a third of a second holds."""
    work()  # caches are warm
    started, count = time.perf_counter(), 0
    while not count or time.perf_counter() - started < _SECONDS:
        work()
        count += 1
    return (time.perf_counter() - started) / count
