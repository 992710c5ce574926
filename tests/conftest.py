"""Fixtures every room may use: the shared public data, and measurements made by hand."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tensorese.records.nouns import (
    Measurement,
    Platform,
    Program,
    Sketch,
    Status,
    TensorSpec,
    Workload,
)

# Machines that run other things meanwhile must not turn a slow example into a failure.
hypothesis.settings.register_profile("tensorese", deadline=None)
hypothesis.settings.load_profile("tensorese")

MeasurementMaker = Callable[..., Measurement]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public measurements; absent, the test is skipped (in CI: it fails)."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("TENSORESE_SHARED_DATA", beside))
    if not (folder / "ansor").is_dir():
        reason = f"public measurements not found in {folder} (set TENSORESE_SHARED_DATA)"
        if os.environ.get("TENSORESE_REQUIRE_SHARED") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return folder


@pytest.fixture
def make_measurement() -> MeasurementMaker:
    """A small valid matmul measurement; name what should be different."""
    return matmul_measurement


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
