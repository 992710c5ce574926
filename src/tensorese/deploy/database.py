"""The chosen programs as a MetaSchedule database: stock TVM applies it without this package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorese.deploy.folder import TunedRun
from tensorese.records.exporters.metaschedule import write_metaschedule
from tensorese.records.nouns import Measurement, Platform, Status, Workload


def write_database(
    run: TunedRun, workloads: Mapping[str, Workload], folder: Path
) -> dict[str, Any]:
    """One record a tuned task, by workload id; returns how many went in and why others did not."""
    platform = Platform(name=run.platform, target=run.target)
    records = [
        Measurement(
            program=run.best[workload_id].program(workload),
            platform=platform,
            status=Status.OK,
            run_secs=(latency,),
            origin="best",
        )
        for workload_id, workload in workloads.items()
        if workload_id in run.best
        for latency in (run.best[workload_id].latency,)
        if latency is not None
    ]
    exported = write_metaschedule(records, folder)
    skipped = dict(exported.skipped)
    untimed = sum(best.latency is None for best in run.best.values())
    if untimed:  # TVM finds no record without a time
        skipped["not measured"] = untimed
    return {"records": exported.written, "skipped": skipped}
