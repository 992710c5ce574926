"""A candidate's way through a measurer: what is sent to workers, and the record it ends as."""

from __future__ import annotations

import math
import os
import signal
from dataclasses import dataclass, field
from typing import Any

from tensorese.language.metaschedule import join_trace
from tensorese.measure.base import Candidate, Ticket
from tensorese.measure.config import FarmConfig
from tensorese.measure.wire import Message
from tensorese.records.nouns import Measurement, Platform, Status, canonical_json

EMPTY_TRACE = "[[],[]]"


@dataclass(eq=False)
class Job:
    """One candidate between `submit` and its measurement. `bests` is shared by its batch."""

    id: int
    index: int
    candidate: Candidate
    ticket: Ticket
    bests: dict[str, float]
    artifact: str = ""
    attempts: int = 0
    built_at: float = 0.0
    build: Message = field(default_factory=dict)
    lane: int = 0
    co_runners: int = 0

    @property
    def workload_id(self) -> str:
        return self.candidate.program.workload.id

    def source(self) -> Message:
        """What a worker needs to have the scheduled module: itself, or workload and trace."""
        program = self.candidate.program
        module = self.candidate.module
        return {
            "module": module,
            "workload": program.workload.module,
            "trace": "" if module else trace_of(self.candidate),
        }

    def build_message(self, target: str) -> Message:
        return {"job": self.id, "target": target, "artifact": self.artifact, **self.source()}

    def run_message(self, config: FarmConfig, best: float) -> Message:
        return {
            "job": self.id,
            "artifact": self.artifact,
            "args": self.build["args"],
            "timing": config.timing.to_dict(),
            "best": best if math.isfinite(best) else None,
            "verify": config.verify if self.candidate.program.workload.module else "none",
            "verify_below": self.bests.get(self.workload_id),
            "workload_id": self.workload_id,
            "seed": config.seed,
            **self.source(),
        }


def trace_of(candidate: Candidate) -> str:
    """The program's whole trace as TVM's JSON, postprocessing tail included; empty for none."""
    program = candidate.program
    if program.sketch.dialect != "metaschedule" or program.sketch.body == EMPTY_TRACE:
        return ""
    sketch = program.sketch
    return canonical_json(join_trace(sketch.body, sketch.slots, program.decisions, program.tail))


@dataclass(frozen=True, kw_only=True)
class Recorder:
    """Everything about the machinery that goes into each measurement."""

    platform: Platform
    config: FarmConfig
    toolchain: dict[str, str]
    threads: int
    host: str = field(default_factory=lambda: os.uname().nodename)

    def measurement(
        self,
        job: Job,
        status: Status,
        *,
        error: str = "",
        run: Message | None = None,
        **timing: Any,
    ) -> Measurement:
        run = run or {}
        settings = self.config.timing
        return Measurement(
            program=job.candidate.program,
            platform=self.platform,
            status=status,
            run_secs=tuple(run.get("secs", ())),
            error=error,
            origin=job.candidate.origin,
            split=job.candidate.split,
            build_secs=float(job.build.get("secs", math.nan)),
            timing={
                "number": run.get("number", 0),
                "cache": settings.cache,
                "adaptive": settings.number == 0,
                "threads": self.threads,
                "co_runners": job.co_runners,
                **timing,
            }
            if run.get("secs")
            else {},
            toolchain=self.toolchain,
            verification=run.get("verification", {}),
            host=self.host,
        )


def death_of(role: str, code: int, overran: float) -> tuple[Status, str]:
    """What a worker's end says about its candidate; SIGKILL from outside says nothing about it.

    `overran` is the limit in seconds for which the farm itself killed the worker, else 0.
    """
    building = role == "build"
    failed = Status.BUILD_ERROR if building else Status.RUN_ERROR
    if overran:
        status = Status.BUILD_TIMEOUT if building else Status.RUN_TIMEOUT
        return status, f"the {role} took longer than its limit of {overran:g} s"
    if code == -signal.SIGKILL:
        return Status.INFRA_ERROR, f"the {role} worker was killed from outside (SIGKILL)"
    if code < 0:
        return failed, f"the {role} worker died of {signal.Signals(-code).name}"
    return Status.INFRA_ERROR, f"the {role} worker exited with code {code}"
