"""Answers candidates from stored records: search is tested and compared without hardware."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence

from tensorese.errors import MeasureError
from tensorese.measure.base import Cancelled, Candidate, Journal, Measurer, Ticket
from tensorese.records.nouns import Measurement, Platform, Program, Status, content_id
from tensorese.records.store import Split, Store

NOT_STORED = "not in the store"


class ReplayMeasurer(Measurer):
    """The stored measurement of each program on one platform, never another platform's.

    A program that the store lacks is `infra_error` with the text "not in the store": the one
    status that is never a label, says nothing about the program, and does not count as tried.
    Stored faults of the machinery are not replayed either. `programs` lists what can be answered,
    for a search that should propose nothing else.

    Several measurements of one program come back in the order of the source, then the last again.
    Each answer keeps the stored time, host and toolchain; `timing["replay_of"]` names the record
    it repeats, so that nobody takes it for a new measurement. Rows marked `test` answer only when
    `split` says so.
    """

    def __init__(
        self,
        source: Store | Iterable[Measurement],
        platform: Platform | str,
        *,
        journal: Journal | None = None,
        split: Split = "train",
    ) -> None:
        name = platform if isinstance(platform, str) else platform.name
        self.platform = Platform(name=name) if isinstance(platform, str) else platform
        self.journal = journal
        self.simulated_secs = 0.0
        """Build and run seconds that the answers so far took when they were measured."""
        self._stored: dict[str, list[Measurement]] = {}
        self._answered: Counter[str] = Counter()
        self._trials = 0
        self._cancelled = self._closed = False
        if isinstance(source, Store):
            source = source.measurements(platform=name, split=split)
        for measurement in source:
            if measurement.platform.name == name and _may_answer(measurement, split):
                self._stored.setdefault(measurement.program.id, []).append(measurement)

    def __len__(self) -> int:
        """How many programs can be answered."""
        return len(self._stored)

    def programs(self, workload_id: str) -> list[Program]:
        """What can be answered for one workload, in the order of the source."""
        firsts = (measurements[0].program for measurements in self._stored.values())
        return [program for program in firsts if program.workload.id == workload_id]

    def submit(self, candidates: Sequence[Candidate]) -> Ticket:
        """Everything is there at once, in the order of `candidates`."""
        if self._closed:
            raise MeasureError("a closed measurer cannot measure; create another")
        ticket = Ticket(len(candidates))
        if self._cancelled:
            ticket.put(Cancelled("cancelled before it was measured"))
            return ticket
        for index, candidate in enumerate(candidates):
            measurement = self._answer(candidate)
            if self.journal is not None:
                self.journal.append(measurement)
            ticket.put((index, measurement))
        return ticket

    def cancel(self) -> None:
        self._cancelled = True

    def settle(self) -> None:
        """Nothing is under way between two calls."""

    def close(self) -> None:
        self._closed = True

    def _answer(self, candidate: Candidate) -> Measurement:
        self._trials += 1
        program_id = candidate.program.id
        stored = self._stored.get(program_id)
        if stored is None:
            return self._missing(candidate)
        measurement = stored[min(self._answered[program_id], len(stored) - 1)]
        self._answered[program_id] += 1
        self.simulated_secs += measurement.cost_secs
        return dataclasses.replace(
            measurement,
            program=candidate.program,
            origin=candidate.origin or measurement.origin,
            timing={**measurement.timing, "replay_of": measurement.id},
            id=self._trial_id(measurement.id),
        )

    def _missing(self, candidate: Candidate) -> Measurement:
        return Measurement(
            program=candidate.program,
            platform=self.platform,
            status=Status.INFRA_ERROR,
            error=f"{NOT_STORED}: program {candidate.program.id} on {self.platform.name}",
            origin=candidate.origin,
            split=candidate.split,
            toolchain={"measurer": "replay"},
            host="replay",
            id=self._trial_id(candidate.program.id),
        )

    def _trial_id(self, of: str) -> str:
        """The same search over the same records writes the same ids."""
        return content_id("replay", of, str(self._trials))


def _may_answer(measurement: Measurement, split: Split) -> bool:
    if measurement.status is Status.INFRA_ERROR:
        return False
    return split == "all" or (measurement.split == "test") == (split == "test")
