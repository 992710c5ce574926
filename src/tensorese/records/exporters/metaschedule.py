"""A MetaSchedule database of our records, as stock TVM 0.27 loads and applies it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tensorese.language.constants import complete
from tensorese.language.metaschedule import join_trace
from tensorese.records.exporters.ansor import FAILED_COST
from tensorese.records.exporters.files import Exported, replacing
from tensorese.records.importers.metaschedule import RECORDS, WORKLOADS
from tensorese.records.journal import write_error
from tensorese.records.modules import encode_blob
from tensorese.records.nouns import Measurement, Status, Workload

# MetaSchedule has no record for either: a lower bound is no time, our own fault no failure.
_UNSAYABLE = {
    Status.CENSORED: "censored: its time is only a lower bound",
    Status.INFRA_ERROR: "infra_error: not the program's fault",
}


def write_metaschedule(
    measurements: Iterable[Measurement],
    folder: Path,
    structural_hash: Callable[[str], str] | None = None,
) -> Exported:
    """Writes both files. `structural_hash` gives TVM's hash of a module whose key is not one."""
    exported = Exported()
    indices: dict[str, int] = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from error
    with replacing(folder / WORKLOADS) as workloads, replacing(folder / RECORDS) as records:
        for m in measurements:
            if why := _why_not(m, structural_hash is not None):
                exported.skip(why)
                continue
            workload = m.program.workload
            if workload.id not in indices:
                indices[workload.id] = len(indices)
                key = workload.key if workload.key.isdecimal() else ""
                if not key and structural_hash is not None:
                    key = structural_hash(workload.module)
                workloads.write(_compact([key, encode_blob(workload.module)]))
            records.write(_compact(_record(m, indices[workload.id])))
            exported.written += 1
    return exported


def _why_not(m: Measurement, can_hash: bool) -> str:
    workload = m.program.workload
    if m.program.sketch.dialect != "metaschedule":
        return "not a MetaSchedule record"
    if not workload.module:
        return "its module is of an older TVM, which 0.27 cannot load"
    if not workload.key.isdecimal() and not can_hash:
        return "its structural hash is not known"
    return _UNSAYABLE.get(m.status, "")


def _record(m: Measurement, index: int) -> list[Any]:
    sketch = m.program.sketch
    body = complete(sketch.body, m.platform.target)
    trace = join_trace(body, sketch.slots, m.program.decisions, m.program.tail)
    costs = list(m.run_secs) if m.status is Status.OK else [FAILED_COST]
    return [index, [trace, costs, json.loads(m.platform.target), _args(m.program.workload)]]


def _args(workload: Workload) -> list[Any]:
    return [["TENSOR", spec.dtype, list(spec.shape)] for spec in workload.args]


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":")) + "\n"
