"""Measurements made by hand, for tests of any room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorese.records.nouns import (
    Measurement,
    Platform,
    Program,
    Sketch,
    Status,
    TensorSpec,
    Workload,
)

MeasurementMaker = Callable[..., Measurement]


def matmul_measurement(
    *,
    size: int = 64,
    decisions: tuple[int, ...] = (8, 8, 16),
    platform: str = "cpu",
    status: Status = Status.OK,
    secs: tuple[float, ...] = (1e-3, 2e-3, 3e-3),
    **more: Any,
) -> Measurement:
    square = TensorSpec(shape=(size, size), dtype="float32")
    workload = Workload(operator="matmul", args=(square,) * 3, attributes={"transpose": False})
    sketch = Sketch(
        dialect="metaschedule", body="[[],[[0,null],[1,null]]]", slots=((0, 2), (1, -1))
    )
    return Measurement(
        program=Program(workload=workload, sketch=sketch, decisions=decisions),
        platform=Platform(name=platform, target='{"kind":"llvm"}'),
        status=status,
        run_secs=secs if status is Status.OK else (),
        **more,
    )
