"""Where a task's first batch comes from: earlier runs, databases, and this run's other tasks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tensorese.records.importers.detect import read_records
from tensorese.records.importers.lines import Skipped
from tensorese.records.nouns import Measurement, Status
from tensorese.records.run_folder import STORE
from tensorese.records.store import HEAD, Split, Store
from tensorese.search.contracts import Proposal, TaskState
from tensorese.search.loop.config import TuneError
from tensorese.search.proposers.warm_start import seeds

if TYPE_CHECKING:
    from tensorese.search.loop.task import Seeds

_FROM_STORES = 0.5  # of a first batch, at most
_FROM_RELATIVES = 0.25


class Learnt:
    """The measurements a run has learnt from, as a store answers.

    Not the store itself: that also holds what came in since, and a resumed run must propose the
    same as one that was never interrupted.
    """

    def __init__(self) -> None:
        self._by_workload: dict[str, list[Measurement]] = {}

    def add(self, measurements: Sequence[Measurement]) -> None:
        for measurement in measurements:
            id_ = measurement.program.workload.id
            self._by_workload.setdefault(id_, []).append(measurement)

    def platforms(self) -> set[str]:
        return {rows[0].platform.name for rows in self._by_workload.values() if rows}

    def measurements(
        self, *, platform: str, workload: str, status: Status, split: Split = "all"
    ) -> Iterator[Measurement]:
        for row in self._by_workload.get(workload, ()):
            if row.status is status and row.platform.name == platform:
                yield row

    def best(self, platform: str, *, split: Split = "all") -> dict[str, Measurement]:
        fastest = {}
        for id_, rows in self._by_workload.items():
            valid = [m for m in rows if m.status is Status.OK and m.platform.name == platform]
            if valid:
                fastest[id_] = min(valid, key=lambda m: m.latency)
        return fastest


def first_rows(stores: Sequence[Store | Learnt], learnt: Learnt) -> Seeds:
    """Half a first batch from earlier records, a quarter from tasks of this run like it."""

    def find(state: TaskState, n: int) -> list[Proposal]:
        stored: list[Proposal] = []
        for store in stores:
            stored += seeds(state, cast(Store, store), round(_FROM_STORES * n) - len(stored))
        others = cast(Store, learnt)
        relatives = seeds(state, others, round(_FROM_RELATIVES * n))
        places = {(p.sketch, p.row) for p in stored}
        return stored + [p for p in relatives if (p.sketch, p.row) not in places]

    return find


@contextmanager
def open_records(paths: Sequence[Path], platform: str) -> Iterator[list[Store]]:
    """Stores of run folders, record stores and MetaSchedule databases, opened for reading."""
    with ExitStack() as stack:
        yield [stack.enter_context(_open(path, platform, stack)) for path in paths]


def _open(path: Path, platform: str, stack: ExitStack) -> Store:
    if not path.exists():
        raise TuneError(f"--warm must name a run, a store or a database, but {path} does not exist")
    for folder in (path, path / STORE):
        if (folder / HEAD).exists():
            return Store.open(folder)
    scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="tensorese-warm-"))
    store = Store.open(Path(scratch) / STORE, create=True)
    store.ingest(read_records(path, platform, skipped=Skipped(allowed=True)))
    return store
