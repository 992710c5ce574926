"""How long to time a program: enough to know it, no longer.

The loop works on any `sample(number, repeat) -> seconds per run` callable, so it is tested
without a compiler. Precision is spent where it decides something: a candidate near the best of
its task is timed until its floor is known to `precision`; one that has clearly lost is not.

A busy host only ever slows a program: on a loaded machine medians of a 128 x 128 product in fresh
processes differed by 14-20 %, lowest samples by 2-3 %. So the lowest samples count. A host that is
slow for longer than a program is timed slows all of them; nothing here sees that.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

Sampler = Callable[[int, int], Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class TimingConfig:
    """Adaptive by default; `number` > 0 switches to TVM's fixed number/repeat/min_repeat_ms."""

    min_samples: int = 5
    """Fewest samples of a candidate that is near the best."""
    max_samples: int = 40
    sample_ms: float = 3.0
    """Length of one sample: shorter programs are run several times in it."""
    budget_ms: float = 100.0
    """Timing stops here whatever the spread; a first run is always completed."""
    precision: float = 0.01
    """The floor is known when three samples are this close to the lowest."""
    calm: float = 0.03
    """Samples this close to the lowest count, the others are kept as disturbed."""
    lost_ratio: float = 1.5
    """A candidate this many times slower than the best known needs two samples, no more."""
    censor_ratio: float = 10.0
    """Slower than this many times the best known: one run, status `censored`."""
    censor_ms: float = 20.0
    """A shorter run is never censored: timing it properly costs less than its label is worth."""
    cache: str = "hot"
    """`hot`, `flushed` before every run (CPU caches, or the GPU's L2), or `rotated`: weights come
    from the last cache, as in a network (`rotation.py`)."""
    number: int = 0
    repeat: int = 1
    min_repeat_ms: int = 0

    def __post_init__(self) -> None:
        if self.cache not in ("hot", "flushed", "rotated"):
            raise ValueError(f"cache must be 'hot', 'flushed' or 'rotated', but got {self.cache!r}")
        if not 1 <= self.min_samples <= self.max_samples:
            raise ValueError(
                "1 <= min_samples <= max_samples must hold, but got "
                f"min_samples={self.min_samples}, max_samples={self.max_samples}"
            )

    def is_hopeless(self, secs: float, best: float) -> bool:
        return secs > self.censor_ratio * best and secs > self.censor_ms / 1e3

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Timed:
    """Samples in seconds per run, and how they came about."""

    secs: tuple[float, ...]
    number: int
    """Runs per sample."""
    censored: bool = False
    disturbed: tuple[float, ...] = ()
    """Samples that do not count."""


def split_calm(secs: Sequence[float], within: float) -> tuple[list[float], list[float]]:
    """Samples near the lowest, and the others; both in the order they were taken."""
    limit = min(secs) * (1 + within)
    return [s for s in secs if s <= limit], [s for s in secs if s > limit]


def is_known(secs: Sequence[float], precision: float) -> bool:
    """Whether the lowest sample is no accident: two more are as low."""
    return len(split_calm(secs, precision)[0]) >= 3


def time_adaptively(
    sample: Sampler, config: TimingConfig, best: float = math.inf, cold: float = 0.0
) -> Timed:
    """Times one program. `best` is the best latency known for its task, infinite if none.

    `cold` is the time of a first run, if there was one: when even that says the program has
    lost, two samples settle it. A sampler warms up by itself with a run that does not count.
    """
    if config.is_hopeless(cold / 2, best):  # even if half of it was start-up
        return Timed(secs=(cold,), number=1, censored=True)
    lost = config.lost_ratio * best
    if cold / 2 > lost and cold > config.sample_ms / 1e3:
        secs = list(sample(1, 2))
        if min(secs) > lost:  # else the host was busy, not the program slow
            return _timed(secs, 1, config)
    started = time.perf_counter()
    first = min(sample(1, 1))
    if config.is_hopeless(first, best):
        return Timed(secs=(first,), number=1, censored=True)
    number = 1
    if config.cache != "flushed":  # a flushed run cannot be repeated inside one sample
        number = max(1, math.ceil(config.sample_ms / 1e3 / max(first, 1e-7)))
    secs = [first] if number == 1 else []
    if first > lost:
        secs.extend(sample(number, 2 - len(secs)))
        if min(secs) > lost:
            return _timed(secs, number, config)
    secs = _until_known(sample, config, secs, number, first, started)
    return _timed(secs, number, config)


def _timed(secs: Sequence[float], number: int, config: TimingConfig) -> Timed:
    calm, disturbed = split_calm(secs, config.calm)
    return Timed(secs=tuple(calm), number=number, disturbed=tuple(disturbed))


def _until_known(
    sample: Sampler,
    config: TimingConfig,
    secs: list[float],
    number: int,
    first: float,
    started: float,
) -> list[float]:
    budget = config.budget_ms / 1e3
    wanted = config.min_samples
    while True:
        left = budget - (time.perf_counter() - started)
        affordable = max(1, int(left / max(first * number, 1e-9)))
        secs.extend(sample(number, min(max(1, wanted - len(secs)), affordable)))
        spent = time.perf_counter() - started
        if spent >= budget or len(secs) >= config.max_samples:
            return secs
        if len(secs) >= wanted:
            if is_known(secs, config.precision):
                return secs
            wanted = min(config.max_samples, len(secs) * 2)


def time_fixed(sample: Sampler, config: TimingConfig) -> Timed:
    """TVM's own rule, for comparisons at equal settings; `sample` applies min_repeat_ms."""
    return Timed(secs=tuple(sample(config.number, config.repeat)), number=config.number)
