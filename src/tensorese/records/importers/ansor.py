"""Ansor logs, v0.2 to v0.6: `{"i": [task, [[], steps]], "r": [costs, error, total, time]}`.

A failure there is a cost of 1e10 s. Here it is a status, and its time does not exist.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tensorese.language.ansor import Slots, split_steps
from tensorese.records.importers.ansor_workloads import workload_of_key
from tensorese.records.importers.lines import Skipped, read_each
from tensorese.records.nouns import (
    Measurement,
    Platform,
    Program,
    Sketch,
    Status,
    Workload,
    canonical_json,
    content_id,
)

NO_TIME = 1e9
"""Seconds from which on a cost is a marker of failure: real ones are never decades."""

ERRORS: dict[int, tuple[Status, str]] = {
    0: (Status.OK, ""),
    1: (Status.INVALID, "ansor error 1: instantiation"),
    2: (Status.BUILD_ERROR, "ansor error 2: compile on the host"),
    3: (Status.BUILD_ERROR, "ansor error 3: compile for the device"),
    4: (Status.RUN_ERROR, "ansor error 4: runtime on the device"),
    5: (Status.WRONG_OUTPUT, "ansor error 5: wrong answer"),
    6: (Status.BUILD_TIMEOUT, "ansor error 6: build timeout"),
    7: (Status.RUN_TIMEOUT, "ansor error 7: run timeout"),
    # Nobody knows whose fault it was, so it must not become a label.
    8: (Status.INFRA_ERROR, "ansor error 8: unknown"),
}
LACKS = "build_secs, repeats, cache state, threads, verification, host"


def read_ansor(path: Path, platform: str, skipped: Skipped) -> Iterator[Measurement]:
    reader = _Reader(platform, f"imported:{path.name}")
    return read_each(path, skipped, reader.read, "an Ansor record")


class _Reader:
    """Remembers what most lines of a log share: tasks, sketches, targets."""

    def __init__(self, platform: str, origin: str) -> None:
        self.platform = platform
        self.origin = origin
        self.workloads: dict[str, Workload] = {}
        self.sketches: dict[tuple[str, Slots], Sketch] = {}
        self.platforms: dict[str, Platform] = {}
        self.toolchains: dict[str, Mapping[str, str]] = {}

    def read(self, line: dict[str, Any]) -> Measurement:
        task, state = line["i"]
        costs, error_no, *rest = line["r"]
        status, error = ERRORS.get(error_no, (Status.INFRA_ERROR, f"ansor error {error_no}"))
        if not all(map(math.isfinite, costs)):
            raise ValueError("a cost that is no number")
        run_secs = tuple(float(cost) for cost in costs if 0 < cost < NO_TIME)
        if status not in (Status.OK, Status.WRONG_OUTPUT):
            run_secs = ()
        elif status is Status.OK and not run_secs:
            status, error = ERRORS[8]
        program = self._program(task[0], state[1])
        stamp = canonical_json([run_secs, error_no, rest])
        return Measurement(
            program=program,
            platform=self._platform(task[1]),
            status=status,
            run_secs=run_secs,
            error=error,
            origin=self.origin,
            timing={"total_secs": rest[0]} if rest else {},
            toolchain=self._toolchain(task, line.get("v", "")),
            time=float(rest[1]) if len(rest) > 1 else 0.0,
            id=content_id("imported", self.platform, program.id, stamp),
        )

    def _program(self, key: str, steps: list[Any]) -> Program:
        workload = self.workloads.get(key)
        if workload is None:
            workload = self.workloads[key] = workload_of_key(key)
        body, slots, decisions = split_steps(steps)
        sketch = self.sketches.get((body, slots))
        if sketch is None:
            sketch = Sketch(dialect="ansor", body=body, slots=slots)
            self.sketches[body, slots] = sketch
        return Program(workload=workload, sketch=sketch, decisions=decisions)

    def _platform(self, target: str) -> Platform:
        return self.platforms.setdefault(target, Platform(name=self.platform, target=target))

    def _toolchain(self, task: list[Any], version: str) -> Mapping[str, str]:
        """What an Ansor line holds beyond our nouns, kept to write the same line again."""
        rest = canonical_json(task[2:])
        return self.toolchains.setdefault(
            f"{version}\x1f{task[0]}\x1f{rest}",
            {"format": "ansor", "version": version, "key": task[0], "task": rest, "lacks": LACKS},
        )
