"""The settings of the rounds, and what must stay as it is from one sitting to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tensorese.errors import TensoreseError


class IterateError(TensoreseError):
    """Rounds that cannot start or go on as asked."""


@dataclass(frozen=True, kw_only=True)
class IterateConfig:
    """Limits (`rounds`, `trials`, `minutes`, `least_gain`) count over all sittings."""

    rounds: int = 8
    trials: int | None = None
    """Programs to hand out, over all rounds; None for as many as the rounds take."""
    minutes: float | None = None
    per_task: int = 16
    """Programs that are written of a picked task in a round."""
    task_share: float = 0.25
    """Of the tasks, in a round."""
    least_gain: float = 0.01
    """Ends with a round that lowers the weighted sum of best latencies by a smaller share."""
    in_flight: int = 48
    """Programs handed to the measurer and not back yet, at least."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("rounds", "trials", "per_task", "in_flight"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise IterateError(
                    f"--{name.replace('_', '-')} must be at least 1, but got {value}"
                )
        if self.minutes is not None and not self.minutes > 0:
            raise IterateError(f"--minutes must be positive, but got {self.minutes:g}")
        if not 0 < self.task_share <= 1:
            raise IterateError(f"--task-share must be in (0, 1], but got {self.task_share:g}")
        if not 0 <= self.least_gain < 1:
            raise IterateError(f"--least-gain must be in [0, 1), but got {self.least_gain:g}")

    def fixed(self) -> Mapping[str, Any]:
        """What the batches depend on: it must not change within a run."""
        return {name: getattr(self, name) for name in ("per_task", "task_share", "seed")}
