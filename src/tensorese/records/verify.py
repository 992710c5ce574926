"""Reads a whole store again and checks everything that can be checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tensorese.errors import StoreError
from tensorese.records.journal import PATTERN, JournalReader, Problem
from tensorese.records.nouns import Sketch, Status, program_id
from tensorese.records.parts import Part, file_digest
from tensorese.records.rows import RecordRow, row_sketch, row_workload
from tensorese.records.store import Store

MAX_NAMED = 50
"""Beyond this many problems of one file the rest is counted, not listed."""


def verify(store: Store) -> dict[str, Any]:
    """`{"ok", "checked", "problems"}`: checksums, recomputed ids, references, repeats."""
    checker = _Checker(store)
    problems = [str(problem) for problem in checker.run()]
    return {
        "path": str(store.path),
        "ok": not problems,
        "checked": dict(checker.checked),
        "problems": problems,
    }


class _Checker:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.checked: Counter[str] = Counter()
        self.sketches: dict[str, Sketch] = {}
        self.workloads: set[str] = set()

    def run(self) -> Iterator[Problem]:
        journals = list(self._journals())
        for _, _, problems in journals:
            yield from problems
        yield from self._nouns("workload", self._take_workload, journals)
        yield from self._nouns("sketch", self._take_sketch, journals)
        for name, entries, _ in journals:
            measurements = [entry["row"] for entry in entries if entry["kind"] == "measurement"]
            yield from _limited(name, self._measurements(name, measurements))
        for kind, check in (("programs", self._programs), ("measurements", self._measurements)):
            for path, table in self._parts(kind):
                if isinstance(table, Problem):
                    yield table
                    continue
                rows = (row for batch in table.to_batches(4096) for row in batch.to_pylist())
                yield from _limited(path.name, check(path.name, rows))

    def _journals(self) -> Iterator[tuple[str, list[dict[str, Any]], list[Problem]]]:
        for path in sorted(self.store.path.glob(PATTERN)):
            reader = JournalReader(path)
            entries = reader.refresh()
            self.checked["journal lines"] += len(entries)
            yield path.name, entries, reader.problems

    def _parts(self, kind: str) -> Iterator[tuple[Path, Any]]:
        for path in sorted(self.store.path.glob(f"{kind}-*.parquet")):
            self.checked["parts"] += 1
            if path.stem != f"{kind}-{file_digest(path)}":
                yield path, Problem(file=path.name, what="changed since it was written")
                continue
            try:
                yield path, Part(path).read()
            except StoreError as error:
                yield path, Problem(file=path.name, what=str(error))

    def _nouns(
        self,
        kind: str,
        take: Callable[[RecordRow], str],
        journals: list[tuple[str, list[Any], Any]],
    ) -> Iterator[Problem]:
        sources = [
            (name, [entry["row"] for entry in entries if entry["kind"] == kind])
            for name, entries, _ in journals
        ]
        for path, table in self._parts("sketches" if kind == "sketch" else "workloads"):
            if isinstance(table, Problem):
                yield table
            else:
                sources.append((path.name, table.to_pylist()))
        for name, rows in sources:
            for row in rows:
                self.checked[f"{kind} rows"] += 1
                if take(row) != row["id"]:
                    yield Problem(file=name, what=f"{kind} {row['id']} is not what its id says")

    def _take_workload(self, row: RecordRow) -> str:
        self.workloads.add(row["id"])
        return row_workload(row).id

    def _take_sketch(self, row: RecordRow) -> str:
        sketch = self.sketches[row["id"]] = row_sketch(row)
        return sketch.id

    def _measurements(self, name: str, rows: Any) -> Iterator[Problem]:
        for row in rows:
            self.checked["measurements"] += 1
            if what := self._wrong(row):
                yield Problem(file=name, what=f"measurement {row['id']} {what}")

    def _programs(self, name: str, rows: Any) -> Iterator[Problem]:
        for row in rows:
            self.checked["programs"] += 1
            if what := self._wrong_program(row, row["id"]):
                yield Problem(file=name, what=f"program {row['id']} {what}")

    def _wrong(self, row: RecordRow) -> str:
        if what := self._wrong_program(row, row["program_id"]):
            return what
        if (row["status"] == Status.OK) != (row["latency"] is not None):
            return f"has status {row['status']} and latency {row['latency']}"
        return ""

    def _wrong_program(self, row: RecordRow, id_: str) -> str:
        sketch = self.sketches.get(row["sketch_id"])
        if sketch is None:
            return f"refers to sketch {row['sketch_id']}, which the store lacks"
        if row["workload_id"] not in self.workloads:
            return f"refers to workload {row['workload_id']}, which the store lacks"
        if len(row["decisions"]) != sketch.n_decisions:
            return f"has {len(row['decisions'])} decisions for {sketch.n_decisions} places"
        if program_id(row["workload_id"], row["sketch_id"], row["decisions"]) != id_:
            return "is not the program its id says"
        return ""


def _limited(name: str, problems: Iterator[Problem]) -> Iterator[Problem]:
    more = 0
    for count, problem in enumerate(problems):
        if count < MAX_NAMED:
            yield problem
        else:
            more += 1
    if more:
        yield Problem(file=name, what=f"{more} more problems like these")
