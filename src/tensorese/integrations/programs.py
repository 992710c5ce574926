"""Between MetaSchedule's objects and the nouns: contexts, candidates, runner results."""

from __future__ import annotations

from typing import Any

from tensorese.identity import plain, workload_of
from tensorese.language.constants import take_constants
from tensorese.language.metaschedule import split_trace
from tensorese.records.nouns import (
    Measurement,
    Platform,
    Program,
    Sketch,
    Status,
    Workload,
)
from tensorese.targets import Target


def target_of(target: Any) -> Target:
    """A TVM target as ours."""
    spec = {str(key): _value(value) for key, value in target.export().items()}
    attributes = {key: value for key, value in spec.items() if key not in ("tag", "keys")}
    return Target.from_dict(attributes)


def _value(value: Any) -> Any:
    return value if isinstance(value, bool | int | float) else plain(value)


def platform_named(name: str, target: Any) -> Platform:
    """The platform of a context; `name` is a model's head, or empty for the target's own name."""
    return target_of(target).platform(name)


def program_of(trace: Any, workload: Workload) -> Program:
    """By the decisions the trace holds; the platform's numbers are no part of it."""
    body, slots, decisions, tail = split_trace(plain(trace.as_json()))
    body, _ = take_constants(body)
    sketch = Sketch(dialect="metaschedule", body=body, slots=slots)
    return Program(workload=workload, sketch=sketch, decisions=decisions, tail=tail)


def measurement_of(program: Program, platform: Platform, result: Any) -> Measurement:
    """Of a runner's result or a tuning record; MetaSchedule reports no cause of a failure."""
    secs = tuple(float(value) for value in plain(result.run_secs or []))
    error = str(getattr(result, "error_msg", None) or "")
    failed = bool(error) or not secs or max(secs) >= 1e9
    return Measurement(
        program=program,
        platform=platform,
        status=Status.RUN_ERROR if failed else Status.OK,
        run_secs=() if failed else secs,
        error=error,
        origin="metaschedule",
    )


class Workloads:
    """The workload of each module met so far."""

    def __init__(self) -> None:
        self._known: list[tuple[Any, Workload]] = []

    def of(self, module: Any) -> Workload:
        for known, workload in self._known:
            if known.same_as(module):
                return workload
        workload = workload_of(module)
        self._known.append((module, workload))
        return workload
