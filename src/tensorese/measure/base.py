"""What is measured and by whom: `Candidate`, the `Measurer` contract, its `Ticket`, `Journal`."""

from __future__ import annotations

import queue
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from tensorese.errors import MeasureError
from tensorese.records.nouns import Measurement, Program, Status

FINALIST = "finalist"
"""The origin of candidates that are timed again, longer, before one is called the best."""


class Cancelled(MeasureError):
    """What a ticket raises for candidates that were given up: see `Measurer.cancel`."""


class Journal(Protocol):
    """Where measurements go before anybody sees them: a `records.Store`, say."""

    def append(self, measurement: Measurement) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A program about to be measured.

    `module` is TVM's JSON of the scheduled module. When it is empty the build worker replays the
    program's trace on its workload instead, which spreads replaying over the workers.
    """

    program: Program
    module: str = ""
    origin: str = ""
    split: str = ""


class Ticket:
    """The results of one `submit`, in the order they complete; iterate it, or `poll` it."""

    def __init__(self, n: int) -> None:
        self.n = n
        self._taken = 0
        self._queue: queue.SimpleQueue[tuple[int, Measurement] | BaseException] = (
            queue.SimpleQueue()
        )

    def put(self, item: tuple[int, Measurement] | BaseException) -> None:
        """For measurers only."""
        self._queue.put(item)

    @property
    def remaining(self) -> int:
        return self.n - self._taken

    def __iter__(self) -> Iterator[tuple[int, Measurement]]:
        while self.remaining:
            yield self._take(block=True)

    def poll(self) -> list[tuple[int, Measurement]]:
        """Whatever has completed by now, without waiting."""
        done: list[tuple[int, Measurement]] = []
        while self.remaining:
            try:
                done.append(self._take(block=False))
            except queue.Empty:
                break
        return done

    def _take(self, *, block: bool) -> tuple[int, Measurement]:
        item = self._queue.get(block=block)
        if isinstance(item, BaseException):
            self._queue.put(item)  # every later call fails the same way instead of hanging
            raise item
        self._taken += 1
        return item


class Measurer(ABC):
    """Turns candidates into measurements. A bad candidate is a status, never an exception."""

    journal: Journal | None = None
    """Receives every measurement before its ticket does; may be set while nothing is in flight."""

    @abstractmethod
    def submit(self, candidates: Sequence[Candidate]) -> Ticket:
        """Starts measuring and returns at once; results arrive as they complete."""

    @property
    def builds_at_once(self) -> int:
        """Candidates it can work on side by side: with fewer in flight it is idle in part."""
        return 1

    def know_best(self, latencies: Mapping[str, float]) -> None:
        """Best latencies reached elsewhere, by workload id: hopeless candidates may be cut short
        against them. A measurer that times nothing ignores them."""
        return

    def measure(self, candidates: Sequence[Candidate]) -> list[Measurement]:
        """Measures and waits; results in the order of `candidates`."""
        results: dict[int, Measurement] = dict(self.submit(candidates))
        return [results[i] for i in range(len(candidates))]

    @abstractmethod
    def cancel(self) -> None:
        """From now on nothing is begun; callable from a signal handler, final.

        What is being measured is finished and journalled; tickets that wait for anything else,
        later ones included, raise `Cancelled`.
        """

    @abstractmethod
    def settle(self) -> None:
        """After `cancel`: waits until everything that was being measured is in the journal."""

    def thinking(self) -> AbstractContextManager[None]:
        """Inside, the caller works hard; a measurer made for that (`TuningFarm`) times nothing
        meanwhile where it would share the caller's cores. The default holds nothing back."""
        return nullcontext()

    @abstractmethod
    def close(self) -> None:
        """Stops every process; idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def failure_summary(measurements: Sequence[Measurement]) -> str:
    """`41 build_error: text; 3 run_timeout: text`, most frequent first, for people."""
    counts = Counter(
        (m.status.value, m.error.strip().splitlines()[0][:160] if m.error.strip() else "")
        for m in measurements
        if m.status not in (Status.OK, Status.CENSORED)
    )
    return "; ".join(
        f"{n} {status}: {text}" if text else f"{n} {status}"
        for (status, text), n in counts.most_common(3)
    )


def require_success(measurements: Sequence[Measurement]) -> None:
    """Raises when not one candidate ran: such a run must never end green."""
    if measurements and not any(m.status is Status.OK for m in measurements):
        raise MeasureError(
            f"at least one of {len(measurements)} candidates must run, but all failed: "
            f"{failure_summary(measurements)}"
        )
