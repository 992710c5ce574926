"""Messages between the driver and a measuring node: JSON text, both ways.

The driver sends `{"batches", "workloads", "sketches", "best", "ack", "wait"}`, the node answers
`{"results"}` with everything that is not acknowledged yet. Workloads and sketches travel once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorese.measure.base import Candidate, Ticket
from tensorese.records.nouns import Measurement, Program
from tensorese.records.rows import (
    RecordRow,
    measurement_row,
    row_measurement,
    row_sketch,
    row_workload,
    sketch_row,
    workload_row,
)


@dataclass(eq=False)
class Order:
    """One candidate between `submit` and its measurement, wherever it is."""

    job: int
    index: int
    candidate: Candidate
    ticket: Ticket
    attempts: int = 0
    """Nodes that were lost, or failed, with it."""

    @property
    def program(self) -> Program:
        return self.candidate.program


Batch = Sequence[Order]


def errand(
    batches: Sequence[Batch],
    *,
    known: set[str],
    acks: Sequence[int],
    best: Mapping[str, float],
    wait: float,
) -> str:
    """The driver's message; `known` are the ids this node has; those sent now are added."""
    workloads: list[RecordRow] = []
    sketches: list[RecordRow] = []
    orders = [order for batch in batches for order in batch]
    for order in orders:
        workload, sketch = order.program.workload, order.program.sketch
        if workload.id not in known:
            workloads.append(workload_row(workload))
        if sketch.id not in known:
            sketches.append(sketch_row(sketch))
        known |= {workload.id, sketch.id}
    named = {order.program.workload.id for order in orders}
    message = {
        "batches": [[_order_row(order) for order in batch] for batch in batches],
        "workloads": workloads,
        "sketches": sketches,
        "best": {key: best[key] for key in named & best.keys()},
        "ack": list(acks),
        "wait": wait,
    }
    return json.dumps(message)


def _order_row(order: Order) -> dict[str, Any]:
    program, candidate = order.program, order.candidate
    return {
        "job": order.job,
        "workload": program.workload.id,
        "sketch": program.sketch.id,
        "decisions": list(program.decisions),
        "origin": candidate.origin,
        "split": candidate.split,
    }


class KnownNouns:
    """The workloads and sketches that a node has received."""

    def __init__(self) -> None:
        self.workloads: dict[str, Any] = {}
        self.sketches: dict[str, Any] = {}

    def learn(self, message: Mapping[str, Any]) -> None:
        self.workloads.update({row["id"]: row_workload(row) for row in message["workloads"]})
        self.sketches.update({row["id"]: row_sketch(row) for row in message["sketches"]})

    def candidate(self, row: Mapping[str, Any]) -> Candidate:
        program = Program(
            workload=self.workloads[row["workload"]],
            sketch=self.sketches[row["sketch"]],
            decisions=tuple(row["decisions"]),
        )
        return Candidate(program=program, origin=row["origin"], split=row["split"])


def report(results: Iterable[tuple[int, Measurement]]) -> str:
    """The node's answer."""
    return json.dumps({"results": [[job, measurement_row(m)] for job, m in results]})


def results_of(text: str) -> list[tuple[int, RecordRow]]:
    return [(int(job), row) for job, row in json.loads(text)["results"]]


def measurement_of(row: RecordRow, order: Order) -> Measurement:
    """Raises KeyError when the row is of another program than the order's."""
    if row["program_id"] != order.program.id:
        raise KeyError(row["program_id"])
    workload, sketch = order.program.workload, order.program.sketch
    return row_measurement(row, {workload.id: workload}, {sketch.id: sketch})
