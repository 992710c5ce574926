"""A candidate's way through a measurer: what is sent to workers, and the record it ends as."""

from __future__ import annotations

import math
import os
import signal
from dataclasses import dataclass, field, replace
from typing import Any

from tensorese.language.constants import complete, is_canonical
from tensorese.language.metaschedule import join_trace
from tensorese.measure.base import Candidate, Ticket
from tensorese.measure.config import FarmConfig
from tensorese.measure.wire import Message
from tensorese.records.nouns import Measurement, Platform, Program, Status, canonical_json
from tensorese.targets import Target

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
    run: Message = field(default_factory=dict)
    """The timing results so far: a contender is timed several times."""
    timed: bool = False
    looks: int = 0
    """How often it is still to be timed again."""
    check: bool = False
    """The next look at it verifies its output."""
    lane: int = 0
    co_runners: int = 0

    @property
    def workload_id(self) -> str:
        return self.candidate.program.workload.id

    @property
    def program(self) -> Program:
        """The candidate's, with the tail that the build worker derived for this platform."""
        tail = self.build.get("tail", "")
        return replace(self.candidate.program, tail=tail) if tail else self.candidate.program

    def source(self, target: Target) -> Message:
        """What a worker needs to have the scheduled module: itself, or workload and trace.

        A canonical trace gets the target's numbers; its stored tail may be another platform's,
        so the build worker postprocesses anew and returns the tail it derived. So it does with a
        trace that nobody has postprocessed yet.
        """
        module = self.candidate.module
        derive = not module and "tail" not in self.build and is_open(self.candidate.program)
        program = replace(self.program, tail="") if derive else self.program
        return {
            "target": target.to_json(),
            "module": module,
            "workload": program.workload.module,
            "trace": "" if module else trace_of(program, target),
            "postprocess": derive,
        }

    def build_message(self, target: Target) -> Message:
        return {"job": self.id, "artifact": self.artifact, **self.source(target)}

    def run_message(self, config: FarmConfig, best: float, target: Target) -> Message:
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
            **self.source(target),
        }


def trace_of(program: Program, target: Target) -> str:
    """The program's trace as TVM's JSON, complete for the target; empty for none."""
    sketch = program.sketch
    if sketch.dialect != "metaschedule" or sketch.body == EMPTY_TRACE:
        return ""
    body = complete(sketch.body, target.to_json())
    return canonical_json(join_trace(body, sketch.slots, program.decisions, program.tail))


def is_open(program: Program) -> bool:
    """Whether what postprocessing does to it on this platform is not known."""
    if program.sketch.dialect != "metaschedule" or program.sketch.body == EMPTY_TRACE:
        return False
    return not program.tail or is_canonical(program.sketch.body)


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
            program=job.program,
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
                "disturbed": run.get("disturbed", []),
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
