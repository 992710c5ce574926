"""Programs nobody has measured yet: what a proposer lists, what a model has written.

They are a Parquet kind of the record store. A program is in a store once, under its program id;
whoever adds it again changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tensorese.records.nouns import Program, Sketch, Workload
from tensorese.records.rows import RecordRow


@dataclass(frozen=True, kw_only=True)
class UnmeasuredProgram:
    """A program, who proposed it, and the score a model gives it."""

    program: Program
    origin: str
    """As a measurement's: `random`, `evolution:RANKER`, `model:NAME:HASH`."""
    score: float = math.nan
    """Higher is faster; compares within a task and an origin. NaN when nobody ranked it."""


def unmeasured_row(one: UnmeasuredProgram) -> RecordRow:
    program = one.program
    return {
        "id": program.id,
        "workload_id": program.workload.id,
        "sketch_id": program.sketch.id,
        "decisions": list(program.decisions),
        "tail": program.tail,
        "origin": one.origin,
        "score": one.score if math.isfinite(one.score) else None,
    }


def row_unmeasured(
    row: RecordRow, workloads: Mapping[str, Workload], sketches: Mapping[str, Sketch]
) -> UnmeasuredProgram:
    """Raises KeyError when the row's workload or sketch is not known."""
    program = Program(
        workload=workloads[row["workload_id"]],
        sketch=sketches[row["sketch_id"]],
        decisions=tuple(row["decisions"]),
        tail=row["tail"],
    )
    score = math.nan if row["score"] is None else row["score"]
    return UnmeasuredProgram(program=program, origin=row["origin"], score=score)
