"""What a store holds at this moment: every journal line and every Parquet row, each once.

Journals are listed before parts: a compaction names the part before it removes the journal, so
a measurement seen in neither place does not exist. One seen in both is the same by its id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tensorese.errors import StoreError
from tensorese.records.journal import PATTERN, JournalReader, Problem
from tensorese.records.nouns import Sketch, Status, Workload
from tensorese.records.parts import Part, to_table
from tensorese.records.rows import RecordRow, row_sketch, row_workload

T = TypeVar("T")

_ATTEMPTS = 20


class LazyNouns(Mapping[str, T]):
    """Workloads or sketches by id, read and decoded when they are asked for: most never are."""

    def __init__(self, decode: Callable[[RecordRow], T]) -> None:
        self._decode = decode
        self._rows: dict[str, RecordRow | tuple[Part, int]] = {}
        self._decoded: dict[str, T] = {}

    def add(self, row: RecordRow) -> None:
        self._rows.setdefault(row["id"], row)

    def add_part(self, part: Part) -> None:
        for place, name in enumerate(part.read(["id"])["id"].to_pylist()):
            self._rows.setdefault(name, (part, place))

    def fetch(self, keys: Iterable[str]) -> None:
        """Reads many at once what would be read one by one."""
        wanted: dict[Path, list[tuple[Part, int]]] = {}
        for key in set(keys) - self._decoded.keys():
            if isinstance(place := self._rows.get(key), tuple):
                wanted.setdefault(place[0].path, []).append(place)
        for places in wanted.values():
            part = places[0][0]
            rows = part.whole.take(pa.array([place for _, place in places])).to_pylist()
            self._rows.update((row["id"], row) for row in rows)

    def row(self, key: str) -> RecordRow:
        row = self._rows[key]
        if isinstance(row, tuple):
            part, place = row
            (row,) = part.whole.slice(place, 1).to_pylist()
        return row

    def __getitem__(self, key: str) -> T:
        if key not in self._decoded:
            self._decoded[key] = self._decode(self.row(key))
        return self._decoded[key]

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class Contents:
    """A view that follows the folder; each `refresh` reads only what is new."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workloads: LazyNouns[Workload] = LazyNouns(row_workload)
        self.sketches: LazyNouns[Sketch] = LazyNouns(row_sketch)
        self.parts: dict[Path, Part] = {}
        self.program_parts: dict[Path, Part] = {}
        """Of programs nobody has measured yet."""
        self._journals: dict[Path, tuple[JournalReader, list[RecordRow]]] = {}
        self._nouns_read: set[Path] = set()
        self._measured: set[tuple[str, str]] = set()
        self._measured_parts: set[Path] = set()
        self._past_problems: list[Problem] = []

    @property
    def problems(self) -> list[Problem]:
        live = [p for reader, _ in self._journals.values() for p in reader.problems]
        return self._past_problems + live

    @property
    def journal_rows(self) -> list[RecordRow]:
        return [row for _, rows in self._journals.values() for row in rows]

    def refresh(self) -> None:
        for _ in range(_ATTEMPTS):
            try:
                self._refresh_journals()
                self.refresh_parts()
                return
            except FileNotFoundError:
                continue  # compacted away between listing and opening: list again
        raise StoreError(f"{self.folder} changes faster than it can be read; try again")

    def _refresh_journals(self) -> None:
        paths = set(self.folder.glob(PATTERN))
        for gone in self._journals.keys() - paths:
            self._past_problems.extend(self._journals.pop(gone)[0].problems)
        for path in sorted(paths):
            reader, rows = self._journals.setdefault(path, (JournalReader(path), []))
            for entry in reader.refresh():
                self.take(entry, rows)

    def take(self, entry: dict[str, Any], rows: list[RecordRow]) -> None:
        """Keeps one journal entry: a noun in this view, a measurement in `rows`."""
        row = entry.get("row", {})
        match entry.get("kind"):
            case "workload":
                self.workloads.add(row)
            case "sketch":
                self.sketches.add(row)
            case "measurement":
                rows.append(row)
                if row["status"] != Status.INFRA_ERROR:
                    self._measured.add((row["program_id"], row["platform"]))

    def refresh_parts(self) -> None:
        for part in self._unread("workloads"):
            self.workloads.add_part(part)
        for part in self._unread("sketches"):
            self.sketches.add_part(part)
        self.parts = self._listed("measurements", self.parts)
        self.program_parts = self._listed("programs", self.program_parts)

    def _listed(self, kind: str, known: Mapping[Path, Part]) -> dict[Path, Part]:
        paths = sorted(self.folder.glob(f"{kind}-*.parquet"))
        return {path: known.get(path) or Part(path) for path in paths}

    def _unread(self, kind: str) -> Iterator[Part]:
        for path in set(self.folder.glob(f"{kind}-*.parquet")) - self._nouns_read:
            yield Part(path)
            self._nouns_read.add(path)

    def platforms(self) -> set[str]:
        known = {name for part in self.parts.values() for name in part.platforms}
        return known | {row["platform"] for row in self.journal_rows}

    def table(self, columns: Sequence[str] | None = None) -> Any:
        """Every measurement once, as an Arrow table with at least the columns asked for."""
        names = None if columns is None else list(dict.fromkeys(["id", *columns]))
        tables = [part.read(names) for part in self.parts.values()]
        rows = self.journal_rows
        if rows or not tables:
            fresh = to_table("measurements", rows)
            tables.append(fresh.select(names) if names else fresh)
        table = pa.concat_tables([t.replace_schema_metadata() for t in tables])
        return drop_repeats(table) if len(tables) > 1 or rows else table

    def programs(self) -> Any:
        """Every unmeasured program once, as an Arrow table."""
        tables = [part.read() for part in self.program_parts.values()]
        tables = tables or [to_table("programs", [])]
        table = pa.concat_tables([one.replace_schema_metadata() for one in tables])
        return drop_repeats(table) if len(tables) > 1 else table

    def pieces(self, kind: str) -> Iterator[Any]:
        """Every measurement, or program, a part at a time; one may come twice."""
        for part in (self.parts if kind == "measurements" else self.program_parts).values():
            yield part.read().replace_schema_metadata()
        if kind == "measurements" and (rows := self.journal_rows):
            yield to_table(kind, rows)

    def ids(self, kind: str) -> Any:
        """Of all measurements, or programs, as an Arrow array; one may be there twice."""
        parts = self.parts if kind == "measurements" else self.program_parts
        known = [part.read(["id"])["id"].combine_chunks() for part in parts.values()]
        if kind == "measurements":
            known.append(pa.array([row["id"] for row in self.journal_rows], pa.string()))
        return pa.concat_arrays(known or [pa.array([], pa.string())])

    def best(self, platform: str, split: str) -> list[RecordRow]:
        """The fastest valid row of every workload; `split` is `all`, `train` or `test`."""
        fastest: dict[str, tuple[float, Any, int]] = {}
        tables = [part.leaders for part in self.parts.values() if platform in part.platforms]
        for table in [*tables, to_table("measurements", self.journal_rows)]:
            valid = pc.and_(
                pc.equal(table["platform"], platform), pc.equal(table["status"], Status.OK.value)
            )
            if split != "all":
                is_test = pc.equal(table["split"], "test")
                valid = pc.and_(valid, is_test if split == "test" else pc.invert(is_test))
            places = pc.indices_nonzero(valid)
            names, secs = (table[c].take(places).to_pylist() for c in ("workload_id", "latency"))
            for name, latency, place in zip(names, secs, places.to_pylist(), strict=True):
                if name not in fastest or latency < fastest[name][0]:
                    fastest[name] = (latency, table, place)
        rows: list[RecordRow] = []
        for table in {id(table): table for _, table, _ in fastest.values()}.values():
            places = [place for _, source, place in fastest.values() if source is table]
            rows.extend(table.take(pa.array(places)).to_pylist())
        return sorted(rows, key=lambda row: float(row["latency"]))

    def measured(self) -> set[tuple[str, str]]:
        """(program id, platform) of everything tried; a fault of the machinery is no try."""
        for path in self.parts.keys() - self._measured_parts:
            self._add_measured(self.parts[path].read(["program_id", "platform", "status"]))
            self._measured_parts.add(path)
        return self._measured

    def _add_measured(self, table: Any) -> None:
        final = table.filter(pc.not_equal(table["status"], Status.INFRA_ERROR.value))
        names = zip(final["program_id"].to_pylist(), final["platform"].to_pylist(), strict=True)
        self._measured.update(names)


def drop_repeats(table: Any) -> Any:
    """The first row of every id."""
    codes = table["id"].combine_chunks().dictionary_encode().indices.to_numpy()
    first = np.unique(codes, return_index=True)[1]
    return table if len(first) == table.num_rows else table.take(pa.array(np.sort(first)))


def new_rows(table: Any, known: Any) -> Any:
    """The rows of the table whose id is not in the array of known ones."""
    return table.filter(pc.invert(pc.is_in(table["id"], value_set=known)))
