"""The record store: a folder of journals and Parquet parts that any number of processes share.

`append` is durable when it returns. Records of one platform never answer for another.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tensorese.errors import StoreError, did_you_mean
from tensorese.records import compaction
from tensorese.records.contents import Contents, drop_repeats, new_rows
from tensorese.records.journal import JournalWriter, Problem, write_error
from tensorese.records.nouns import Measurement, Sketch, Status, Workload
from tensorese.records.parts import SCHEMA_VERSION, check_version, to_table
from tensorese.records.programs import UnmeasuredProgram, row_unmeasured, unmeasured_row
from tensorese.records.rows import (
    RecordRow,
    measurement_row,
    row_measurement,
    sketch_row,
    workload_row,
)

_DAMAGED = (ValueError, LookupError, TypeError, ArithmeticError, RecursionError)
Split = Literal["all", "train", "test"]
T = TypeVar("T")

HEAD = "store.json"
SCRATCH = ".store.json"  # another process may be founding the same store
INGEST_ROWS = 1 << 16
READ_ROWS = 4096


class Store:
    """Open with `Store.open`, use as a context manager; nothing is written before an append."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._contents = Contents(path)
        self._writer: JournalWriter | None = None
        self._in_journal: set[str] = set()
        self._dangling: dict[str, Problem] = {}
        self._guard = threading.Lock()

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, create: bool = False) -> Store:
        folder = Path(path)
        if folder.exists() and not folder.is_dir():
            raise StoreError(f"a record store is a folder, but {folder} is a file; name the folder")
        if not (folder / HEAD).exists():
            _establish(folder, create=create)
        try:
            version = int(json.loads((folder / HEAD).read_text())["schema"])
        except (*_DAMAGED, OSError) as error:
            raise StoreError(
                f"{folder / HEAD} must name the schema of the store, but it cannot be read; "
                "restore the file from a copy"
            ) from error
        check_version(folder, version)
        return cls(folder)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._in_journal.clear()

    # ---- writing

    def append(self, measurement: Measurement) -> None:
        """Journalled when this returns: killing the process loses nothing."""
        self.append_many([measurement])

    def append_many(self, measurements: Iterable[Measurement]) -> None:
        """All of them with one write: for results that arrive together."""
        with self._guard:
            if self._writer is not None and self._writer.pid != os.getpid():
                # A forked child leaves its parent's journal to the parent.
                self._writer = None
                self._in_journal.clear()
            entries, mentioned = self._entries(measurements)
            if not entries:
                return
            try:
                self._writer = self._writer or JournalWriter(self.path)
                self._writer.write(entries)
            except OSError as error:
                raise write_error(self.path, error) from error
            except StoreError:
                self.close()  # the next append starts a journal of its own, past any half line
                raise
            self._in_journal |= mentioned

    def _entries(
        self, measurements: Iterable[Measurement]
    ) -> tuple[list[dict[str, Any]], set[str]]:
        """Journal entries, and the ids of the nouns among them that this journal lacked."""
        entries: list[dict[str, Any]] = []
        mentioned: set[str] = set()
        for m in measurements:
            workload, sketch = m.program.workload, m.program.sketch
            if workload.id not in self._in_journal and workload.id not in mentioned:
                mentioned.add(workload.id)
                entries.append({"kind": "workload", "row": workload_row(workload)})
            if sketch.id not in self._in_journal and sketch.id not in mentioned:
                mentioned.add(sketch.id)
                entries.append({"kind": "sketch", "row": sketch_row(sketch)})
            entries.append({"kind": "measurement", "row": measurement_row(m)})
        return entries, mentioned

    def ingest(self, measurements: Iterable[Measurement]) -> int:
        """Bulk load straight into Parquet; returns how many were new. Loading twice is once."""
        known = set(self.table(["id"])["id"].to_pylist())
        before = len(known)
        stream = iter(measurements)
        while batch := list(itertools.islice(stream, INGEST_ROWS)):
            fresh = {m.id: m for m in batch if m.id not in known}
            known.update(fresh)
            self._add(
                {m.program.workload.id: m.program.workload for m in fresh.values()},
                {m.program.sketch.id: m.program.sketch for m in fresh.values()},
                to_table("measurements", [measurement_row(m) for m in fresh.values()]),
            )
        self.compact()
        return len(known) - before

    def add_programs(self, programs: Iterable[UnmeasuredProgram]) -> int:
        """Writes programs nobody has measured yet; returns how many the store did not list."""
        known = set(self.program_table()["id"].to_pylist())
        before = len(known)
        stream = iter(programs)
        while batch := list(itertools.islice(stream, INGEST_ROWS)):
            fresh: dict[str, UnmeasuredProgram] = {}
            for one in batch:
                if one.program.id not in known:
                    fresh.setdefault(one.program.id, one)
            known.update(fresh)
            self._add(
                {one.program.workload.id: one.program.workload for one in fresh.values()},
                {one.program.sketch.id: one.program.sketch for one in fresh.values()},
                to_table("programs", [unmeasured_row(one) for one in fresh.values()]),
                "programs",
            )
        self.compact()
        return len(known) - before

    def absorb(self, other: Store) -> int:
        """Copies what this store lacks; returns how many measurements that was."""
        self._add(other.workloads(), other.sketches(), to_table("measurements", []))
        added = {kind: self._absorb(other, kind) for kind in ("measurements", "programs")}
        self.compact()
        return added["measurements"]

    def _absorb(self, other: Store, kind: str) -> int:
        """A part at a time: neither store need fit in memory."""
        self._contents.refresh()
        known, added = self._contents.ids(kind), 0
        for piece in other._contents.pieces(kind):
            table = new_rows(drop_repeats(piece), known)
            known = pa.concat_arrays([known, table["id"].combine_chunks()])
            added += int(table.num_rows)
            self._add({}, {}, table, kind)
            del piece, table
            pa.default_memory_pool().release_unused()
        return added

    def _add(
        self,
        workloads: Mapping[str, Workload],
        sketches: Mapping[str, Sketch],
        table: Any,
        kind: str = "measurements",
    ) -> None:
        with compaction.exclusive(self.path):
            compaction.add_parts(self.path, workloads, sketches, table, kind)

    def compact(self) -> int:
        """Moves this writer's journal and those of dead writers into Parquet."""
        self._contents.refresh()  # remembers the problems of journals about to go
        self.close()
        return compaction.compact(self.path)

    def squeeze(self) -> None:
        """As `compact`, into as few and as small files as can be; takes its time."""
        self._contents.refresh()
        self.close()
        compaction.squeeze(self.path)

    # ---- reading

    @property
    def problems(self) -> list[Problem]:
        """What was repaired, skipped or left out while reading."""
        self._contents.refresh()
        return [*self._contents.problems, *self._dangling.values()]

    def targets(self) -> dict[str, str]:
        """JSON of the target that each platform's programs were built for."""
        table = self.table(["platform", "target"])
        return dict(zip(table["platform"].to_pylist(), table["target"].to_pylist(), strict=True))

    def platforms(self) -> set[str]:
        self._contents.refresh()
        return self._contents.platforms()

    def workloads(self) -> Mapping[str, Workload]:
        self._contents.refresh()
        return self._contents.workloads

    def sketches(self) -> Mapping[str, Sketch]:
        self._contents.refresh()
        return self._contents.sketches

    def table(
        self,
        columns: Sequence[str] | None = None,
        *,
        platform: str | None = None,
        workload: str | None = None,
        status: Status | None = None,
        split: Split = "all",
    ) -> Any:
        """The measurements as an Arrow table, for trainers; `workload` is an id."""
        self._contents.refresh()
        if platform is not None:
            self._check_platform(platform)
        wanted = {"platform": platform, "workload_id": workload, "status": status}
        filters = {name: value for name, value in wanted.items() if value is not None}
        needed = None if columns is None else [*columns, *filters, "split"]
        return _select(self._contents.table(needed), filters, split)

    def measurements(
        self,
        *,
        platform: str | None = None,
        workload: str | None = None,
        status: Status | None = None,
        split: Split = "all",
    ) -> Iterator[Measurement]:
        table = self.table(platform=platform, workload=workload, status=status, split=split)
        for batch in table.to_batches(max_chunksize=READ_ROWS):
            yield from self._decode(batch.to_pylist())

    def program_table(self) -> Any:
        """The programs nobody has measured yet, as an Arrow table."""
        self._contents.refresh()
        return self._contents.programs()

    def programs(
        self, *, workload: str | None = None, untried_on: str | None = None
    ) -> Iterator[UnmeasuredProgram]:
        """Programs written by `add_programs`; with `untried_on` a platform, those that this store
        has no measurement of there."""
        table = self.program_table()
        if workload is not None:
            table = table.filter(pc.equal(table["workload_id"], workload))
        tried = self._contents.measured() if untried_on is not None else set()
        for batch in table.to_batches(max_chunksize=READ_ROWS):
            rows = [row for row in batch.to_pylist() if (row["id"], untried_on) not in tried]
            yield from self._decoded(rows, row_unmeasured, "program")

    def best(self, platform: str, *, split: Split = "all") -> dict[str, Measurement]:
        """The fastest valid measurement of every workload on this platform, by workload id."""
        self._contents.refresh()
        self._check_platform(platform)
        rows = self._contents.best(platform, split)
        self._contents.workloads.fetch(row["workload_id"] for row in rows)
        self._contents.sketches.fetch(row["sketch_id"] for row in rows)
        names = {row["id"]: row["workload_id"] for row in rows}
        return {names[m.id]: m for m in self._decode(rows)}

    def has(self, program_id: str, platform: str) -> bool:
        """Whether it was ever tried there; a fault of the machinery is no try."""
        self._contents.refresh()
        return (program_id, platform) in self._contents.measured()

    def info(self) -> dict[str, Any]:
        """Counts by platform and status, sizes, and what was found wrong."""
        columns = ["platform", "status", "workload_id", "sketch_id", "split", "toolchain"]
        table = self.table(columns)
        return {
            "path": str(self.path),
            "schema": SCHEMA_VERSION,
            "measurements": table.num_rows,
            "workloads": len(self._contents.workloads),
            "sketches": len(self._contents.sketches),
            "programs": self._contents.programs().num_rows,
            "test_rows": _count(table, "split", "test"),
            "bytes": sum(_size(path) for path in self.path.rglob("*")),
            "platforms": {
                name: _platform_info(table.filter(pc.equal(table["platform"], name)))
                for name in sorted(self._contents.platforms())
            },
            "problems": [str(problem) for problem in self._contents.problems]
            + self._lacking(table),
        }

    def _lacking(self, table: Any) -> list[str]:
        """Rows that nobody can read, because what they refer to is gone."""
        lines = []
        known_ids = {"workload": set(self.workloads()), "sketch": set(self.sketches())}
        for noun, known in known_ids.items():
            ids = set(pc.unique(table[f"{noun}_id"]).to_pylist()) - known
            gone = pc.is_in(table[f"{noun}_id"], value_set=pa.array(sorted(ids), pa.string()))
            rows = int(pc.sum(gone).as_py() or 0)
            if rows:
                lines.append(
                    f"{rows:,} measurements refer to {len(ids):,} {noun} rows that the store "
                    "lacks: merge a copy that has them"
                )
        return lines

    def _check_platform(self, platform: str) -> None:
        known = self._contents.platforms()
        if platform not in known:
            listed = ", ".join(sorted(known)) or "none yet"
            raise StoreError(
                f"{self.path} has no records of platform {platform!r}"
                f"{did_you_mean(platform, known)}; it has: {listed}"
            )

    def _decode(self, rows: Iterable[RecordRow]) -> Iterator[Measurement]:
        return self._decoded(rows, row_measurement, "measurement")

    def _decoded(
        self,
        rows: Iterable[RecordRow],
        decode: Callable[[RecordRow, Mapping[str, Workload], Mapping[str, Sketch]], T],
        what: str,
    ) -> Iterator[T]:
        workloads, sketches = self._contents.workloads, self._contents.sketches
        for row in rows:
            try:
                yield decode(row, workloads, sketches)
            except KeyError as missing:
                why = f"left out: it refers to {missing}, which the store lacks"
                self._dangling[row["id"]] = Problem(file=f"{what} {row['id']}", what=why)


def _establish(folder: Path, *, create: bool) -> None:
    """Makes an empty store of a new or empty folder."""
    if not create:
        what = "has no store.json" if folder.exists() else "does not exist"
        raise StoreError(
            f"a record store is a folder with a {HEAD}, but {folder} {what}; make one with "
            "`tensorese data import … --out STORE`"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        others = [path for path in folder.iterdir() if not path.name.startswith(SCRATCH)]
        if others and not (folder / HEAD).exists():
            raise StoreError(f"{folder} must be empty or a record store, but it holds other files")
        scratch = folder / f"{SCRATCH}.{os.getpid()}"
        scratch.write_text(json.dumps({"schema": SCHEMA_VERSION, "created": time.time()}) + "\n")
        scratch.rename(folder / HEAD)
    except OSError as error:
        raise write_error(folder, error) from error


def _select(table: Any, filters: Mapping[str, Any], split: Split) -> Any:
    for name, value in filters.items():
        table = table.filter(pc.equal(table[name], str(value)))
    if split == "test":
        return table.filter(pc.equal(table["split"], "test"))
    if split == "train":
        return table.filter(pc.not_equal(table["split"], "test"))
    return table


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:  # compacted away just now
        return 0


def _count(table: Any, column: str, value: str) -> int:
    return int(pc.sum(pc.equal(table[column], value)).as_py() or 0)


def _platform_info(table: Any) -> dict[str, Any]:
    counted = pc.value_counts(table["status"]).to_pylist()
    by_status = {entry["values"]: entry["counts"] for entry in counted}
    valid = by_status.pop(Status.OK.value, 0)
    return {
        "measurements": table.num_rows,
        "valid": valid,
        "tasks": pc.count_distinct(table["workload_id"]).as_py(),
        "failures": dict(sorted(by_status.items(), key=lambda item: -item[1])),
        "lowering": lowerings(table),
    }


def lowerings(table: Any) -> dict[str, int]:
    """How many rows each version of `lowering` compiled, '' those that name none; times of one
    are no times of another."""
    counted: Counter[str] = Counter()
    for entry in pc.value_counts(table["toolchain"]).to_pylist():
        toolchain = json.loads(entry["values"] or "{}")
        counted[str(toolchain.get("lowering", ""))] += entry["counts"]
    return dict(counted)
