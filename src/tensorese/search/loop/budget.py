"""How much a run may still spend: trials, and seconds with the ending set aside."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from tensorese.search.loop.config import TuneConfig
from tensorese.search.loop.scheduler import Progress

_REPORT_SECS = 25.0  # packing weights, verifying, timing end to end, drawing
_TRIALS_A_SECOND = 2.0  # on two cores, roughly
_MOST = 0.4  # of the limit that the ending may take


@dataclass
class Budget:
    """`started` is when the process did, on `time.time`'s clock."""

    config: TuneConfig
    started: float
    earlier: float
    """Seconds of earlier sittings."""
    compiles: bool = True

    def elapsed(self) -> float:
        return self.earlier + time.time() - self.started

    def first_batch(self, tasks: int) -> int:
        """Candidates of a task's first batch, so that first visits take half the run at most."""
        each = 1 << 30
        if self.config.trials is not None:
            each = self.config.trials // (2 * tasks)
        if self.config.limit_secs is not None:
            each = min(each, int(self.config.limit_secs * _TRIALS_A_SECOND / (2 * tasks)))
        return max(1, each)

    def trials_left(self, used: int) -> int:
        return 1 << 60 if self.config.trials is None else max(0, self.config.trials - used)

    def secs_left(self, tasks: Sequence[Progress]) -> float | None:
        """Until measuring must end so that the rest fits; None without a limit."""
        limit = self.config.limit_secs
        return None if limit is None else limit - self.elapsed() - self.ending(tasks)

    def ending(self, tasks: Sequence[Progress]) -> float:
        """What finalists, compiling and the report are expected to take."""
        limit = self.config.limit_secs
        builds = sum(task.secs / task.trials for task in tasks if task.trials)
        runs = 0.1 * self.config.rounds * self.config.finalists * len(tasks)
        ending = builds * self.config.finalists / 2 + runs
        if self.compiles:
            ending += _REPORT_SECS + 2 * builds
        return ending if limit is None else min(ending, _MOST * limit)

    def estimate_left(self, used: int, tasks: Sequence[Progress]) -> float | None:
        """Seconds until the end, for people."""
        guesses = []
        secs = self.secs_left(tasks)
        if secs is not None:
            guesses.append(max(0.0, secs))
        spent = self.elapsed()
        if self.config.trials is not None and used and spent > 0:
            guesses.append(self.trials_left(used) * spent / used)
        return min(guesses) + self.ending(tasks) if guesses else None
