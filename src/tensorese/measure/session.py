"""Measuring into a store: what the store already has is not measured again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tensorese.errors import MeasureError
from tensorese.measure.base import Candidate, Measurer, require_success
from tensorese.measure.faults import FaultsInARow
from tensorese.records.nouns import Measurement, Status
from tensorese.records.store import Store

BATCH = 256  # candidates in flight: bounds memory, large enough to keep every worker busy


@dataclass
class MeasuredTally:
    """What a session did, for its progress line and its result."""

    known: int = 0
    """Candidates the store had already."""
    measured: list[Measurement] = field(default_factory=list)

    @property
    def by_status(self) -> dict[str, int]:
        return dict(Counter(m.status.value for m in self.measured).most_common())


def measure_new(
    measurer: Measurer,
    store: Store,
    platform: str,
    candidates: Iterable[Candidate],
    on_result: Callable[[MeasuredTally], None] = lambda tally: None,
) -> MeasuredTally:
    """Measures what `store` lacks for `platform`; raises if not one candidate ran.

    The measurer itself journals into the store, so an interrupted session has lost nothing and
    the same call again continues it.
    """
    tally, faults = MeasuredTally(), FaultsInARow()
    tried: set[str] = set()
    for batch in _batches(_unknown(candidates, store, platform, tried, tally)):
        for _, measurement in measurer.submit(batch):
            faults.see(measurement)
            tally.measured.append(measurement)
            on_result(tally)
    require_success(tally.measured)
    return tally


def _unknown(
    candidates: Iterable[Candidate],
    store: Store,
    platform: str,
    tried: set[str],
    tally: MeasuredTally,
) -> Iterator[Candidate]:
    for candidate in candidates:
        program = candidate.program.id
        if program in tried or store.has(program, platform):
            tally.known += 1
        else:
            tried.add(program)
            yield candidate


def _batches(candidates: Iterator[Candidate]) -> Iterator[Sequence[Candidate]]:
    batch: list[Candidate] = []
    for candidate in candidates:
        batch.append(candidate)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def stored_candidates(store: Store, platform: str | None, limit: int) -> list[Candidate]:
    """Distinct replayable programs of a store, valid ones only, fastest first within a task."""
    rows = [
        m
        for m in store.measurements(platform=platform, status=Status.OK)
        if m.program.workload.module
    ]
    if not rows:
        raise MeasureError(
            f"programs must be replayable to be measured, but {store.path} has none with a "
            "TVM 0.27 workload; Ansor logs and old databases serve the models only"
        )
    rows.sort(key=lambda m: (m.program.workload.id, m.latency))
    programs = {m.program.id: m for m in rows}
    chosen = list(programs.values())[:limit] if limit else list(programs.values())
    return [Candidate(program=m.program, origin=m.origin, split=m.split) for m in chosen]
