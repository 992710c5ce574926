"""The farm's settings and the plan of cores that follows from a target and a host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tensorese.errors import MeasureError
from tensorese.measure.timing import TimingConfig
from tensorese.targets import Target

VERIFY_POLICIES = ("best", "all", "none")


@dataclass(frozen=True, kw_only=True)
class FarmConfig:
    """Every limit is per candidate; a candidate that breaks one is a status, not an error."""

    build_workers: int = 0
    """0: one per core that builders may use."""
    lanes: int = 1
    """Runners that time programs side by side, each on its own cores (CPU targets only)."""
    build_timeout: float = 30.0
    run_timeout: float = 20.0
    reference_timeout: float = 120.0
    memory_gib: float = 6.0
    """Address space a worker may add to what TVM itself maps; 0 for no limit."""
    recycle_mib: float = 1024.0
    """A worker that has grown by this much is replaced after its current candidate."""
    retries: int = 2
    """How often a candidate is tried again after a fault of the machinery."""
    verify: str = "best"
    """`best` checks each candidate that becomes the best of its batch, `all`, or `none`."""
    seed: int = 0
    """Of the inputs that outputs are verified on."""
    run_batch: int = 32
    """Built programs that wait before builders make room for timed runs (shared cores only)."""
    run_wait: float = 2.0
    """Seconds after which a built program no longer waits for `run_batch`."""
    sentinel_secs: float = 10.0
    """How often the sentinel kernel is timed to detect drift; 0 to do without."""
    looks: int = 3
    """How often the best sixth of a batch is timed again (CPU); 0 for never."""
    look_least: int = 10
    """Of a small batch, more than a sixth: so many."""
    look_ratio: float = 3.0
    """Nobody is who is this many times slower than the best of its batch."""
    calm_secs: float = 3.0
    """How long a batch's second looks may wait for a calm machine, all together; 0: not at all."""
    timing: TimingConfig = field(default_factory=TimingConfig)

    def __post_init__(self) -> None:
        if self.verify not in VERIFY_POLICIES:
            raise MeasureError(
                f"verify must be one of {', '.join(VERIFY_POLICIES)}, but got {self.verify!r}"
            )
        for name in ("build_timeout", "run_timeout", "reference_timeout"):
            if getattr(self, name) <= 0:
                raise MeasureError(f"{name} must be positive, but got {getattr(self, name)}")
        if self.lanes < 1 or self.build_workers < 0:
            raise MeasureError(
                "lanes >= 1 and build_workers >= 0 must hold, but got "
                f"lanes={self.lanes}, build_workers={self.build_workers}"
            )


@dataclass(frozen=True, kw_only=True)
class CorePlan:
    """Who runs where. `exclusive`: builders stand still while a program is being timed."""

    lanes: tuple[tuple[int, ...], ...]
    builders: tuple[int, ...]
    exclusive: bool
    threads: int


def plan_cores(target: Target, config: FarmConfig, cores: Sequence[int]) -> CorePlan:
    threads = target.threads
    if not target.is_cpu:
        # One core feeds the device; with a single core the builders share it.
        others = tuple(cores[1:]) or tuple(cores)
        return CorePlan(lanes=((cores[0],),), builders=others, exclusive=False, threads=1)
    needed = threads * config.lanes
    if needed > len(cores):
        raise MeasureError(
            f"lanes x num-cores <= usable cores must hold, but got {config.lanes} x {threads} > "
            f"{len(cores)}; lower --lanes or the target's num-cores"
        )
    lanes = tuple(tuple(cores[i * threads : (i + 1) * threads]) for i in range(config.lanes))
    spare = tuple(cores[needed:])
    return CorePlan(
        lanes=lanes, builders=spare or tuple(cores), exclusive=not spare, threads=threads
    )
