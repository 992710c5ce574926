"""The farm as collecting uses it: its own plan of cores, one record of bests over all batches."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tensorese.errors import MeasureError
from tensorese.measure.base import Journal
from tensorese.measure.config import CorePlan, FarmConfig, plan_cores
from tensorese.measure.director import Director
from tensorese.measure.farm import Farm
from tensorese.measure.timing import TimingConfig
from tensorese.records.nouns import Platform
from tensorese.targets import Target, usable_cores

# Two or three samples place a program in its task; only those near the best are worth more.
COLLECTING = FarmConfig(
    timing=TimingConfig(min_samples=3, max_samples=12, budget_ms=60.0, censor_ratio=16.0),
    build_timeout=8.0,
    run_timeout=8.0,
    run_batch=64,
    looks=2,
    look_least=2,
    look_ratio=1.15,
    calm_secs=0.0,  # many programs known well, rather than few known better
)

# Nothing can be built while a program has many cores: long turns, and short timings in them.
_WIDE_THREADS = 8
_WIDE = replace(
    COLLECTING,
    timing=replace(COLLECTING.timing, budget_ms=40.0),
    run_batch=160,
    run_wait=4.0,
    looks=1,
)

_NVRTC_SECS = 20.0


def collecting_on(target: Target, *, verify: str = "best") -> FarmConfig:
    """The same for a kind of target: NVIDIA's compiler takes its time, wide programs the host."""
    if target.kind == "cuda":
        return replace(COLLECTING, verify=verify, build_timeout=_NVRTC_SECS)
    wide = target.threads >= _WIDE_THREADS
    return replace(_WIDE if wide else COLLECTING, verify=verify)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How programs are timed side by side.

    `lanes` runners at once, each alone on `stride` cores (2 leaves a hyperthread's twin idle);
    in `phases` builders and planners stand still meanwhile, otherwise they have cores of their
    own. The isolated layout is one lane in phases: nothing else runs while a program is timed.
    """

    lanes: int = 1
    stride: int = 1
    phases: bool = True

    @property
    def name(self) -> str:
        how = "in phases" if self.phases else "beside builders"
        return f"{self.lanes} lanes of {self.stride} cores {how}"


ISOLATED = Layout()


def layouts_for(threads: int, cores: int) -> list[Layout]:
    """Layouts worth trying, the fastest first; the last one is isolated."""
    if threads > 1 or cores < 8:
        return [ISOLATED]
    # A build takes three times as long as timing what it built.
    lanes = round(0.28 * cores)
    shared = [
        Layout(lanes=lanes, stride=1, phases=False),
        Layout(lanes=lanes, stride=2, phases=False),
        Layout(lanes=cores // 2, stride=2, phases=True),
        Layout(lanes=cores // 4, stride=4, phases=True),
    ]
    return [*shared, ISOLATED]


def arrange(target: Target, config: FarmConfig, layout: Layout, cores: Sequence[int]) -> CorePlan:
    """The cores of every lane, and the builders'."""
    threads = target.threads
    if not target.is_cpu or (layout == ISOLATED and threads >= len(cores)):
        return plan_cores(target, config, cores)
    width = max(threads, layout.stride)
    if width * layout.lanes > len(cores):
        raise MeasureError(
            f"lanes x cores of a lane <= usable cores must hold, but got {layout.lanes} x {width} "
            f"> {len(cores)}; lower --lanes or the target's num-cores"
        )
    taken = layout.lanes * width
    spare = tuple(cores[taken:])
    return CorePlan(
        lanes=tuple(tuple(cores[i : i + threads]) for i in range(0, taken, width)),
        builders=tuple(cores) if layout.phases or not spare else spare,
        exclusive=layout.phases or not spare,
        threads=threads,
    )


class CollectFarm(Farm):
    """`on_phase(True)` is called when a timing phase begins on cores that others share."""

    def __init__(
        self,
        target: Target,
        config: FarmConfig,
        *,
        platform: Platform,
        journal: Journal | None = None,
        layout: Layout = ISOLATED,
        on_phase: Callable[[bool], None] = lambda timing: None,
    ) -> None:
        self.layout = layout
        self.on_phase = on_phase
        self._bests: dict[str, float] = {}
        super().__init__(target, config, platform=platform, journal=journal)

    def _shared_bests(self) -> dict[str, float]:
        """A candidate is verified when it beats its task's best so far, not its batch's."""
        return self._bests

    def _plan_cores(self) -> CorePlan:
        return arrange(self.target, self.config, self.layout, usable_cores())

    def _make_director(self) -> Director:
        return _PhasedDirector(self, self.on_phase)


class _PhasedDirector(Director):
    def __init__(self, farm: CollectFarm, on_phase: Callable[[bool], None]) -> None:
        super().__init__(farm)
        self.on_phase = on_phase
        self.timing_before = False

    def _choose_phase(self) -> None:
        super()._choose_phase()
        if self.timing_phase != self.timing_before:
            self.timing_before = self.timing_phase
            self.on_phase(self.timing_phase)


def keep_off_lanes(plan: CorePlan) -> None:
    """Moves this whole process to the builders' cores; timed programs are not disturbed."""
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), plan.builders)
