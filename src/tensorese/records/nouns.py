"""The nouns every room shares, free of TVM: workload, sketch, program, measurement.

A program is a sketch (an instruction list with holes) plus a row of integers (what fills the
holes). Ids are hashes of canonical content, so the same program found on two machines, or
imported from two files, is one program.
"""

from __future__ import annotations

import hashlib
import math
import statistics
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from tensorese.language.primitive import canonical_json as canonical_json


class Status(StrEnum):
    """How a measurement ended. Only `OK` carries a label; only `INFRA_ERROR` is retried."""

    OK = "ok"
    CENSORED = "censored"  # cut short: known to be slower than `run_secs`, far from the best
    INVALID = "invalid"  # TVM refused the schedule before building
    BUILD_ERROR = "build_error"
    BUILD_TIMEOUT = "build_timeout"
    RUN_ERROR = "run_error"
    RUN_TIMEOUT = "run_timeout"
    WRONG_OUTPUT = "wrong_output"
    INFRA_ERROR = "infra_error"  # the machinery's fault, never the program's: never a label


def content_id(*parts: str) -> str:
    """A 16-hex-digit id of the parts; the separator keeps ("ab","c") and ("a","bc") apart."""
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorSpec:
    """Shape and element type of one argument."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One subgraph: operator, argument shapes, attributes. Canonical, with no platform in it."""

    operator: str
    args: tuple[TensorSpec, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    source: str = "tvm"
    """Where it was first seen: `ansor`, `metaschedule-legacy` (not replayable) or `tvm`."""
    key: str = ""
    """Its name there: an Ansor workload key, a MetaSchedule structural hash."""
    module: str = ""
    """TVM 0.27's JSON of the unscheduled module; empty when it cannot be replayed."""

    @cached_property
    def id(self) -> str:
        specs = [[list(a.shape), a.dtype] for a in self.args]
        # TVM's structural hash says what is computed; the operator is then a label only.
        name = "" if "structure" in self.attributes else self.operator
        return content_id("workload", name, canonical_json([specs, self.attributes]))


@dataclass(frozen=True, kw_only=True)
class Sketch:
    """An instruction list whose decisions are holes.

    `body` is canonical JSON with holes as null; `slots` lists `[instruction, length]` per hole
    in order, length -1 for a single integer, so that decisions flatten to one row and back.
    """

    dialect: str  # "ansor" or "metaschedule"
    body: str
    slots: tuple[tuple[int, int], ...]

    @cached_property
    def id(self) -> str:
        return content_id("sketch", self.dialect, self.body, canonical_json(self.slots))

    @property
    def n_decisions(self) -> int:
        return sum(1 if length < 0 else length for _, length in self.slots)


@dataclass(frozen=True, kw_only=True)
class Program:
    """Workload + sketch + decisions: what is measured, on whichever platform."""

    workload: Workload
    sketch: Sketch
    decisions: tuple[int, ...]
    tail: str = ""
    """Instructions after `EnterPostproc`, as JSON: re-derived on replay, no part of identity."""

    @cached_property
    def id(self) -> str:
        return program_id(self.workload.id, self.sketch.id, self.decisions)


def program_id(workload_id: str, sketch_id: str, decisions: Sequence[int]) -> str:
    return content_id("program", workload_id, sketch_id, canonical_json(list(decisions)))


@dataclass(frozen=True, kw_only=True)
class Platform:
    """Hardware plus compiler target. Records of one platform never answer for another."""

    name: str
    target: str = "{}"
    """Canonical JSON of the TVM target, or an Ansor target string."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One trial, complete: what ran, how it was timed, where, with what, and how it ended."""

    program: Program
    platform: Platform
    status: Status
    run_secs: tuple[float, ...] = ()
    """Seconds per run, every sample kept; empty unless `ok`, `censored` or `wrong_output`."""
    error: str = ""
    origin: str = ""
    """`random`, `mutation`, `imported:FILE`, or `model:NAME:HASH`."""
    split: str = ""
    """`test` marks rows that tuning and training never read."""
    build_secs: float = math.nan
    timing: Mapping[str, Any] = field(default_factory=dict)
    """number, repeats, cache state, threads, pinned cores, co-runners, drift."""
    toolchain: Mapping[str, str] = field(default_factory=dict)
    verification: Mapping[str, Any] = field(default_factory=dict)
    """`{}` when not checked; else seed, tolerance, reference, error, passed."""
    host: str = ""
    time: float = field(default_factory=time.time)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def latency(self) -> float:
        """Median seconds of a valid run; NaN for anything else: never a sentinel value."""
        if self.status is not Status.OK or not self.run_secs:
            return math.nan
        latency = statistics.median(self.run_secs)
        return latency if 0 < latency < math.inf else math.nan

    @property
    def cost_secs(self) -> float:
        """Seconds of building and timed running behind the record, as far as it is known."""
        build = self.build_secs if math.isfinite(self.build_secs) else 0.0
        runs_per_sample = int(self.timing.get("number") or 1)
        return build + sum(self.run_secs) * runs_per_sample
