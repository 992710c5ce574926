"""What a tuning run writes down and announces, from what it knows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tensorese.records.nouns import Measurement, Status
from tensorese.records.run_entries import BestProgram
from tensorese.records.run_folder import RunFolder
from tensorese.search.contracts import Proposal
from tensorese.search.loop.config import TuneConfig
from tensorese.search.loop.events import NewBest, Started
from tensorese.search.loop.finalists import Winner
from tensorese.search.loop.scheduler import NOISE
from tensorese.search.loop.task import TuningTask


def started(
    folder: RunFolder, tasks: Sequence[TuningTask], known: int, config: TuneConfig
) -> Started:
    """`known` trials were made by earlier sittings."""
    return Started(
        network=str(folder.head["network"]),
        platform=str(folder.head["platform"]),
        run=str(folder.path),
        tasks=[task.line() for task in tasks],
        known=known,
        limits={"trials": config.trials, "seconds": config.limit_secs},
        peak_gflops=folder.head.get("peak_gflops"),
    )


def batch_line(
    task: TuningTask, proposals: Sequence[Proposal], results: Sequence[Measurement]
) -> dict[str, Any]:
    """A batch as the run folder keeps it: what was proposed, by whom, and what it was."""
    proposed = [
        {
            "program": m.program.id,
            "score": p.score if math.isfinite(p.score) else None,
            "origin": p.origin,
            "measurement": m.id,
        }
        for p, m in zip(proposals, results, strict=True)
    ]
    best = task.progress.best if task.progress.valid else None
    return {"task": task.id, "proposed": proposed, "best": best}


def new_best(task: TuningTask, results: Sequence[Measurement], before: float) -> NewBest | None:
    """The best of a batch, where it beats what was known by more than noise."""
    valid = [m for m in results if m.status is Status.OK]
    best = min(valid, key=lambda m: m.latency, default=None)
    if best is None or best.latency >= before * (1 - NOISE):
        return None
    known = before if math.isfinite(before) else None
    return NewBest(task=task.line(), measurement=best, before=known)


def best_entries(
    tasks: Sequence[TuningTask], winners: dict[str, Winner]
) -> dict[str, dict[str, Any]]:
    """Winners by workload id, with what deploying them needs."""
    named = {task.id: task for task in tasks}
    return {
        id_: _best(named[id_], winner).to_dict(named[id_].task.workload)
        for id_, winner in winners.items()
    }


def _best(tuned: TuningTask, winner: Winner) -> BestProgram:
    task, program = tuned.task, winner.measurement.program
    return BestProgram(
        sketch=program.sketch,
        decisions=program.decisions,
        tail=program.tail,
        latency=winner.latency,
        name=task.name,
        weight=task.weight,
        flops=task.flops,
        remeasured=winner.remeasured,
        verified=bool(winner.measurement.verification.get("passed")),
        others=tuple(_best(tuned, other) for other in winner.others),
    )
