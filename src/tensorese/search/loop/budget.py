"""How much a run may still spend: trials, and seconds with the ending set aside."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tensorese.search.loop.config import TuneConfig
from tensorese.search.loop.scheduler import Progress

_COMPILE_SECS = 25.0  # loading systems, verifying and timing them, drawing
_PREPARED = 1.5  # the network is read and prepared again, for Winograd's algorithm and without
_TRIALS_A_SECOND = 2.0  # on two cores, roughly
_MOST = 0.5  # of the time that the ending may take


@dataclass
class Budget:
    """`started` is when the process did, on `time.monotonic`'s clock, which nobody sets."""

    config: TuneConfig
    started: float
    earlier: float
    """Seconds of earlier sittings."""
    compiles: bool = True
    preparing: float = 0.0
    """Seconds that reading the network and finding its tasks took."""

    def elapsed(self) -> float:
        return self.earlier + time.monotonic() - self.started

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
        runs = 0.1 * self.config.rounds * self.config.finalists * len(tasks)
        ending = _builds(tasks) * self.config.finalists / 2 + runs + self.compiling(tasks)
        return min(ending, self._most())

    def compiling(self, tasks: Sequence[Progress]) -> float:
        """What follows the finalists; how long systems are timed then makes up for the error."""
        if not self.compiles:
            return 0.0
        return _PREPARED * self.preparing + 2 * _builds(tasks) + _COMPILE_SECS

    def time_for_a_turn(self, tasks: Sequence[Progress]) -> bool:
        """Whether finalists may be timed once more."""
        limit = self.config.limit_secs
        return limit is None or self.elapsed() < limit - min(self.compiling(tasks), self._most())

    def _most(self) -> float:
        """What the ending may take: a part of the time that reading the network left."""
        limit = self.config.limit_secs
        return math.inf if limit is None else _MOST * max(limit - self.preparing, 0.0)

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


def _builds(tasks: Sequence[Progress]) -> float:
    """Seconds to build one program of every task."""
    return sum(task.secs / task.trials for task in tasks if task.trials)
