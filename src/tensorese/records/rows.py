"""Nouns as rows and back: one spelling for the journal's lines and the Parquet columns."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from tensorese.records.nouns import (
    Measurement,
    Platform,
    Program,
    Sketch,
    Status,
    TensorSpec,
    Workload,
    canonical_json,
)

RecordRow: TypeAlias = dict[str, Any]


def workload_row(workload: Workload) -> RecordRow:
    return {
        "id": workload.id,
        "operator": workload.operator,
        "args": canonical_json([[list(a.shape), a.dtype] for a in workload.args]),
        "attributes": canonical_json(workload.attributes),
        "source": workload.source,
        "key": workload.key,
        "module": workload.module,
    }


def row_workload(row: RecordRow) -> Workload:
    specs = json.loads(row["args"])
    return Workload(
        operator=row["operator"],
        args=tuple(TensorSpec(shape=tuple(shape), dtype=dtype) for shape, dtype in specs),
        attributes=json.loads(row["attributes"]),
        source=row["source"],
        key=row["key"],
        module=row["module"],
    )


def sketch_row(sketch: Sketch) -> RecordRow:
    return {
        "id": sketch.id,
        "dialect": sketch.dialect,
        "body": sketch.body,
        "slots": canonical_json(sketch.slots),
    }


def row_sketch(row: RecordRow) -> Sketch:
    slots = tuple((index, length) for index, length in json.loads(row["slots"]))
    return Sketch(dialect=row["dialect"], body=row["body"], slots=slots)


def measurement_row(m: Measurement) -> RecordRow:
    """Ids stand for workload and sketch; what is not a number (NaN) is null."""
    return {
        "id": m.id,
        "program_id": m.program.id,
        "workload_id": m.program.workload.id,
        "sketch_id": m.program.sketch.id,
        "platform": m.platform.name,
        "target": m.platform.target,
        "status": m.status.value,
        "latency": _nullable(m.latency),
        "run_secs": list(m.run_secs),
        "decisions": list(m.program.decisions),
        "tail": m.program.tail,
        "error": m.error,
        "origin": m.origin,
        "split": m.split,
        "build_secs": _nullable(m.build_secs),
        "timing": _mapping(m.timing),
        "toolchain": _mapping(m.toolchain),
        "verification": _mapping(m.verification),
        "host": m.host,
        "time": m.time,
    }


def row_measurement(
    row: RecordRow, workloads: Mapping[str, Workload], sketches: Mapping[str, Sketch]
) -> Measurement:
    """Raises KeyError when the row's workload or sketch is not known."""
    program = Program(
        workload=workloads[row["workload_id"]],
        sketch=sketches[row["sketch_id"]],
        decisions=tuple(row["decisions"]),
        tail=row["tail"],
    )
    return Measurement(
        program=program,
        platform=Platform(name=row["platform"], target=row["target"]),
        status=Status(row["status"]),
        run_secs=tuple(row["run_secs"]),
        error=row["error"],
        origin=row["origin"],
        split=row["split"],
        build_secs=math.nan if row["build_secs"] is None else row["build_secs"],
        timing=json.loads(row["timing"]),
        toolchain=json.loads(row["toolchain"]),
        verification=json.loads(row["verification"]),
        host=row["host"],
        time=row["time"],
        id=row["id"],
    )


def _nullable(value: float) -> float | None:
    return None if math.isnan(value) else value


def _mapping(value: Any) -> str:
    return canonical_json(value) if value else "{}"
