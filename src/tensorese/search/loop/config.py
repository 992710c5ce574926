"""The settings of a tuning run."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from tensorese.errors import TensoreseError

DEFAULT_MINUTES = 10.0


class TuneError(TensoreseError):
    """A tuning run that cannot start or go on with its settings."""


@dataclass(frozen=True, kw_only=True)
class TuneConfig:
    """Limits count over all sittings of a run; without any it ends after `DEFAULT_MINUTES`."""

    trials: int | None = None
    """In total, over all tasks; failed candidates count, re-measured finalists do not. With 0
    nothing is measured: models choose."""
    minutes: float | None = None
    """Wall-clock from the start of the process, finalists, compiling and the report included."""
    batch: int = 16
    """Candidates proposed at once: fewer learn earlier, more keep the machine busier."""
    early_stopping: int = 0
    """A task is done after so many trials without improvement; 0 to go on."""
    tasks: tuple[str, ...] = ()
    """Globs on names and operators, or beginnings of workload ids; empty for all."""
    finalists: int = 3
    """Programs of a task that are timed again, in turns, before one is called its best."""
    rounds: int = 3
    """Turns of the finalists."""
    seed: int = 0
    prepack: bool = True
    """Whether schedules may choose the order of constant weights (CPUs)."""
    winograd: bool = True
    """Whether 3x3 convolutions may go by Winograd's algorithm (CPUs)."""
    attention: bool = True
    """Whether attention may be one kernel (CPUs)."""

    def __post_init__(self) -> None:
        if self.trials is not None and self.trials < 0:
            raise TuneError(
                f"--trials must not be negative, but got {self.trials}; 0 chooses programs by a "
                "model and measures nothing"
            )
        if self.trials == 0 and self.minutes is not None:
            raise TuneError(
                f"--minutes limits measuring, but --trials 0 measures nothing, and got "
                f"--minutes {self.minutes:g} beside it; leave one of them out"
            )
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise TuneError(
                f"--minutes must be positive and finite, but got {self.minutes:g}; without it "
                "--trials alone ends a run"
            )
        for name in ("batch", "finalists", "rounds"):
            if getattr(self, name) < 1:
                raise TuneError(f"{name} must be at least 1, but got {getattr(self, name)}")
        if self.early_stopping < 0:
            raise TuneError(
                f"--early-stopping must not be negative, but got {self.early_stopping}; 0 is off"
            )

    @property
    def limit_secs(self) -> float | None:
        """The wall-clock limit, the default one when no limit is set; None for no limit."""
        if self.minutes is not None:
            return self.minutes * 60
        return DEFAULT_MINUTES * 60 if self.trials is None else None

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "tasks": list(self.tasks)}
