"""What a run tells others while it goes on: four moments, plain data, no dependency on loggers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tensorese.records.nouns import Measurement, Status

log = logging.getLogger(__name__)

FINE = (Status.OK, Status.CENSORED)


@dataclass(frozen=True, kw_only=True)
class TaskLine:
    """One task as a table shows it."""

    workload: str
    name: str
    operator: str
    weight: int
    flops: float
    trials: int = 0
    failures: int = 0
    latency: float | None = None
    """Seconds, the best so far."""
    note: str = ""
    """Why it is not tuned, or not any longer."""
    chosen: str = ""
    """Who proposed its program, where that was chosen without measuring."""

    @property
    def gflops(self) -> float | None:
        return self.flops / self.latency / 1e9 if self.latency else None


@dataclass(frozen=True, kw_only=True)
class Started:
    network: str
    platform: str
    run: str
    tasks: Sequence[TaskLine]
    known: int
    """Trials of earlier sittings."""
    limits: dict[str, Any] = field(default_factory=dict)
    peak_gflops: float | None = None
    """Of the machine, where it is known."""


@dataclass(frozen=True, kw_only=True)
class BatchDone:
    task: TaskLine
    trials: int
    """Of the whole run."""
    secs: float
    left: float | None
    """Estimated seconds until the run ends; None when nobody can tell."""
    measurements: Sequence[Measurement]
    phases: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class NewBest:
    """A program faster than its task's best by more than the noise, or its first."""

    task: TaskLine
    measurement: Measurement
    before: float | None


@dataclass(frozen=True, kw_only=True)
class Ended:
    tasks: Sequence[TaskLine]
    state: str
    reason: str
    trials: int
    secs: float


class Callback:
    """Derive from it, override what you need. What a callback raises is reported, not fatal."""

    def on_start(self, event: Started) -> None: ...

    def on_batch(self, event: BatchDone) -> None: ...

    def on_best(self, event: NewBest) -> None: ...

    def on_end(self, event: Ended) -> None: ...

    def on_note(self, text: str) -> None:
        """A line for people: a task that cannot be tuned, a phase that begins."""


class Announcer(Callback):
    """Passes every event on; a callback that raises is named once and left out from then on."""

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self.callbacks = list(callbacks)

    def _tell(self, moment: str, event: Any) -> None:
        for callback in list(self.callbacks):
            try:
                getattr(callback, moment)(event)
            except Exception as error:
                self.callbacks.remove(callback)
                name = type(callback).__name__
                failure = f"callback {name}.{moment} raised {type(error).__name__}: {error}"
                log.warning("%s", failure)
                self._tell("on_note", f"{failure}; it is left out from now on")

    def on_start(self, event: Started) -> None:
        self._tell("on_start", event)

    def on_batch(self, event: BatchDone) -> None:
        self._tell("on_batch", event)

    def on_best(self, event: NewBest) -> None:
        self._tell("on_best", event)

    def on_end(self, event: Ended) -> None:
        self._tell("on_end", event)

    def on_note(self, text: str) -> None:
        self._tell("on_note", text)
