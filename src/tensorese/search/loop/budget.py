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
PLAY_OFF = 0.1  # of the time that the network may decide between finalists
_PLAY_OFF_SECS = 20.0  # of it, beside two more builds
_MOST = 0.5  # of the time that the ending may take
_FINALISTS = 0.1  # of it that timing finalists again may take
_TURN = 0.1  # seconds that a finalist is timed
FEWEST = 3  # trials of a task, before one can speak of its best


@dataclass
class Budget:
    """`started` is when the process did, on `time.monotonic`'s clock, which nobody sets."""

    config: TuneConfig
    started: float
    earlier: float
    """Seconds of earlier sittings."""
    compiles: int = 1
    """Shapes that the library is compiled, verified and timed for; 0 where none is built."""
    preparing: float = 0.0
    """Seconds that reading the network and finding its tasks took."""
    builders: int = 2
    """Programs that are built at once."""
    side_by_side: bool = False
    """Whether a library's kernels are compiled by all builders, not two libraries by one."""
    plays_off: bool = False
    """Whether the network decides between finalists."""

    def elapsed(self) -> float:
        return self.earlier + time.monotonic() - self.started

    def first_batch(self, tasks: int) -> int:
        """Candidates of a task's first batch, so that first visits take half the run at most, but
        where trials suffice every task gets `FEWEST`."""
        trials = self.config.trials
        least = FEWEST if trials is None else min(FEWEST, trials // tasks)
        return max(1, least, int(expected_trials(self.config) / (2 * tasks)))

    def trials_left(self, used: int) -> int:
        return 1 << 60 if self.config.trials is None else max(0, self.config.trials - used)

    def secs_left(self, tasks: Sequence[Progress]) -> float | None:
        """Until measuring must end so that the rest fits; None without a limit."""
        limit = self.config.limit_secs
        return None if limit is None else limit - self.elapsed() - self.ending(tasks)

    def ending(self, tasks: Sequence[Progress]) -> float:
        """What finalists, compiling and the report are expected to take."""
        n = min(self.config.finalists * len(tasks), self.finalists(tasks))
        return min(n * self._finalist(tasks) + self.compiling(tasks), self._most())

    def finalists(self, tasks: Sequence[Progress]) -> int:
        """How many programs of all tasks may be timed again."""
        limit = self.config.limit_secs
        return 1 << 30 if limit is None else int(_FINALISTS * limit / self._finalist(tasks))

    def _finalist(self, tasks: Sequence[Progress]) -> float:
        build = _builds(tasks) / max(1, sum(task.trials > 0 for task in tasks))
        return build / self.builders + _TURN * self.config.rounds

    def compiling(self, tasks: Sequence[Progress]) -> float:
        """What follows the finalists; how long systems are timed then makes up for the error."""
        if not self.compiles:
            return 0.0
        builds = _builds(tasks) * (1 / self.builders if self.side_by_side else 2)
        together = _PREPARED * self.preparing + builds + _COMPILE_SECS * self.compiles
        return together + self._playing_off(builds)

    def _playing_off(self, builds: float) -> float:
        """In the network, between finalists; 0 where there is too little time for it."""
        secs = builds + _PLAY_OFF_SECS
        fits = self.plays_off and secs <= PLAY_OFF * (self.config.limit_secs or self.elapsed())
        return secs if fits else 0.0

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


def expected_trials(config: TuneConfig) -> float:
    """Of the whole run, roughly, as its limits allow."""
    by_time = math.inf if config.limit_secs is None else config.limit_secs * _TRIALS_A_SECOND
    return by_time if config.trials is None else min(config.trials, by_time)


def _builds(tasks: Sequence[Progress]) -> float:
    """Seconds to build one program of every task."""
    return sum(task.secs / task.trials for task in tasks if task.trials)
