"""What tests of training share: records as programs, and how well a model ranks them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cpu_records_support import cpu_measurements
from tensorese.evaluation.judge import judge_scores
from tensorese.features.programs import ProgramSet, read_programs
from tensorese.models.base import Model
from tensorese.records.store import Store

OLD, NEW = "lake-1c", "lake-16c"
"""Two platforms of the made-up CPU records: they want other tiles."""


def cpu_store(folder: Path, platforms: Sequence[str] = (OLD, NEW), **what: Any) -> Store:
    store = Store.open(folder, create=True)
    store.ingest(cpu_measurements(platforms, **what))
    return store


def cpu_programs(folder: Path, platforms: Sequence[str] = (OLD, NEW), **what: Any) -> ProgramSet:
    with cpu_store(folder, platforms, **what) as store:
        return read_programs([store])


def pairs_in_order(
    model: Model, programs: ProgramSet, platform: str, tasks: Sequence[int], label: str = ""
) -> float:
    """Share of pairs of a task that the model orders as the clock does; a coin gets a half.

    `label` names the platform that judges, where that is not the one that is asked.
    """
    scores = model.rank(model.read_all(programs), platform).astype(np.float64)
    results = judge_scores(programs, label or platform, scores, tasks)
    assert results
    return float(np.mean([result.pairwise for result in results]))


class Killed(Exception):
    """Raised in place of the signal that ends a run."""


def kill_after(epoch: int) -> Callable[[dict[str, Any]], None]:
    """Ends a run when the next epoch is done but not yet kept."""

    def progress(entry: dict[str, Any]) -> None:
        if entry["epoch"] == epoch + 1:
            raise Killed

    return progress
