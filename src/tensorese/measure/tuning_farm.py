"""The farm as a tuning run needs it: it waits while its owner thinks, and times finalists longer.

A search works in the process that owns the farm. On a machine without spare cores that work would
disturb timed runs just as builders would, so it happens inside `thinking()`: the farm finishes the
run it is at, starts no other, and goes on building.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import statistics
import threading
import time
from collections.abc import Iterator
from typing import Any

from tensorese.measure.base import FINALIST
from tensorese.measure.config import FarmConfig
from tensorese.measure.director import Director
from tensorese.measure.farm import Farm
from tensorese.measure.jobs import Job
from tensorese.measure.timing import TimingConfig
from tensorese.measure.wire import Message
from tensorese.targets import Target

STRICT = TimingConfig(  # of finalists
    min_samples=10,
    max_samples=80,
    budget_ms=100.0,
    precision=0.003,
    lost_ratio=1000.0,  # it is near the best, whatever its first sample says
    censor_ratio=1000.0,
)
TUNING = FarmConfig(
    run_batch=8,  # half a batch: its results are learnt from while the other half is built
    looks=1,  # finalists are timed again anyway
    look_least=2,
    look_ratio=1.15,
    calm_secs=0.0,
    timing=TimingConfig(budget_ms=60.0, precision=0.015),
)
IN_NETWORK = dataclasses.replace(TUNING, timing=dataclasses.replace(TUNING.timing, cache="rotated"))
"""For tasks that will run as kernels of one network: weights are not found in the near caches."""
_PATIENCE = ((8, 8.0, 2.0), (3, 16.0, 6.0))
"""Of so many known builds, so many times the median is allowed, and at least so many seconds."""


def as_finalist(config: FarmConfig) -> Message:
    """What a run of a finalist is asked otherwise: longer timing, verification."""
    strict = dataclasses.asdict(STRICT) | {"cache": config.timing.cache}
    return {"timing": json.loads(json.dumps(strict)), "verify": "all"}


class TuningFarm(Farm):
    """A `Farm` that can be held."""

    def __init__(self, target: Target, config: FarmConfig = TUNING, **kwargs: Any) -> None:
        self.held = False
        self.calm = threading.Event()
        """Set while no program is timed."""
        self.calm.set()
        self.phase_lock = threading.Lock()
        self.bests: dict[str, float] = {}
        """Of the whole run: who does not contend for a task's best is neither checked nor timed
        again."""
        super().__init__(target, config, **kwargs)

    def _make_director(self) -> Director:
        return TuningDirector(self)

    def _shared_bests(self) -> dict[str, float]:
        return self.bests

    @contextlib.contextmanager
    def thinking(self) -> Iterator[None]:
        if not self.plan.exclusive or self._failure is not None:
            yield
            return
        with self.phase_lock:
            self.held = True
        self._wake()
        self.calm.wait()
        try:
            yield
        finally:
            self.held = False
            self._wake()


class TuningDirector(Director):
    farm: TuningFarm

    def __init__(self, farm: TuningFarm) -> None:
        super().__init__(farm)
        self.kept: dict[str, tuple[str, Message]] = {}
        """Built finalists by program id: each is compiled once and run in several turns."""
        self.build_secs: dict[str, list[float]] = {}

    def run(self) -> None:
        try:
            super().run()
        finally:
            self.farm.calm.set()  # nobody waits for a thread that has ended

    def _dispatch(self) -> None:
        if self.kept and not self.farm.cancelled:
            self._skip_known_builds()
        super()._dispatch()

    def _choose_phase(self) -> None:
        with self.farm.phase_lock:
            if not self.farm.held:
                super()._choose_phase()
            elif not self._is_timing():  # the program that is being timed ends undisturbed
                self.timing_phase = False
                for worker in self.workers.values():
                    worker.resume()
            if self.timing_phase:
                self.farm.calm.clear()
            else:
                self.farm.calm.set()

    def _until_next_deadline(self) -> float | None:
        if not self.farm.held:
            return super()._until_next_deadline()
        waiting, self.built = self.built, type(self.built)()
        try:
            return super()._until_next_deadline()  # built programs wait for the owner, not a clock
        finally:
            self.built = waiting

    # -- builds that take far longer than others ------------------------------------------

    def _dispatch_builds(self) -> None:
        busy = {w.pid for w in self.workers.values() if w.job is not None}
        super()._dispatch_builds()
        for worker in self.workers.values():
            if worker.role == "build" and worker.pid not in busy and isinstance(worker.job, Job):
                worker.allow(self._build_limit(worker.job))

    def _build_limit(self, job: Job) -> float:
        """What takes LLVM many times longer than its like has never been the best."""
        known = self.build_secs.get(job.workload_id, [])
        if job.candidate.origin == FINALIST:
            return self.config.build_timeout
        for builds, times, least in _PATIENCE:
            if len(known) >= builds:
                usual = max(least, times * statistics.median(known))
                return min(self.config.build_timeout, usual)
        return self.config.build_timeout

    def _hurry(self, workload_id: str) -> None:
        """Builds begun when less was known of their like are held to what is known now."""
        for worker in self.workers.values():
            job = worker.job
            if worker.role == "build" and isinstance(job, Job) and job.workload_id == workload_id:
                worker.hurry(self._build_limit(job))

    # -- finalists ------------------------------------------------------------------------

    def _skip_known_builds(self) -> None:
        """A turn of finalists is submitted after the one before: all of it has been built."""
        while self.to_build and self.to_build[0].candidate.program.id in self.kept:
            job = self.to_build.popleft()
            job.artifact, job.build = self.kept[job.candidate.program.id]
            job.built_at = time.monotonic()
            self.built.append(job)

    def _replace_crew(self) -> None:
        self.kept.clear()
        super()._replace_crew()

    def _on_built(self, job: Job, reply: Message) -> None:
        super()._on_built(job, reply)
        if reply["status"] == "ok":
            self.build_secs.setdefault(job.workload_id, []).append(float(reply["secs"]))
            self._hurry(job.workload_id)
        if job.candidate.origin == FINALIST and reply["status"] == "ok":
            self.kept[job.candidate.program.id] = (job.artifact, reply)

    def _is_looked_at_again(self, job: Job, reply: Message) -> bool:
        if job.candidate.origin == FINALIST:
            return False  # its turns are its other looks
        return super()._is_looked_at_again(job, reply)

    def _record(self, job: Job, *rest: Any) -> Any:
        if job.candidate.origin == FINALIST:
            job.artifact = ""  # it is run again; the scratch folder goes with the farm
        return super()._record(job, *rest)

    def _run_message(self, job: Job, best: float) -> Message:
        message = super()._run_message(job, best)
        if job.candidate.origin == FINALIST:
            message |= as_finalist(self.config)
        return message
