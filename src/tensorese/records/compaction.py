"""Journals into Parquet, safe to kill at any moment.

The order makes it so: a part gets its name when it is complete, nouns before the measurements
that refer to them, and a journal goes only after its rows are in a part. Killed in between, rows
stand in both places under one id, and the next compaction finds them known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from tensorese.records.contents import Contents, LazyNouns, drop_repeats, new_rows
from tensorese.records.journal import PATTERN, FileLock, JournalReader, write_error
from tensorese.records.nouns import Sketch, Workload
from tensorese.records.parts import (
    LEVEL,
    MOST_ROWS,
    SMALLEST,
    Part,
    sync_folder,
    to_table,
    write_part,
)
from tensorese.records.rows import RecordRow, sketch_row, workload_row

T = TypeVar("T")

# Nouns are few and read at every opening: they are kept together more eagerly.
MAX_PARTS = {"workloads": 2, "sketches": 2, "programs": 8, "measurements": 8}


def exclusive(folder: Path) -> FileLock:
    """Only one process writes or removes parts at a time; others wait."""
    try:
        lock = FileLock(folder / "compact.lock", create=True, wait=True)
        for scratch in folder.glob("*.tmp"):  # left by a process that was killed
            scratch.unlink(missing_ok=True)
    except OSError as error:
        raise write_error(folder, error) from error
    return lock


def add_parts(
    folder: Path,
    workloads: Mapping[str, Workload],
    sketches: Mapping[str, Sketch],
    table: Any,
    kind: str = "measurements",
) -> None:
    """Writes nouns that are new, and the rows of `kind`; the caller holds the lock."""
    stored = Contents(folder)
    stored.refresh_parts()
    fresh = {
        "workloads": _rows(workloads, stored.workloads, workload_row),
        "sketches": _rows(sketches, stored.sketches, sketch_row),
    }
    for noun, rows in fresh.items():
        if rows:
            write_part(folder, noun, to_table(noun, rows))
    if table.num_rows:
        write_part(folder, kind, table)


def _rows(
    nouns: Mapping[str, T], stored: Mapping[str, T], row_of: Callable[[T], RecordRow]
) -> list[RecordRow]:
    """Of those that are not stored; what was read as rows is not decoded for it."""
    new = [name for name in nouns if name not in stored]
    if isinstance(nouns, LazyNouns):
        return [nouns.row(name) for name in new]
    return [row_of(nouns[name]) for name in new]


def compact(folder: Path) -> int:
    """Returns how many measurements were moved; journals of live writers stay."""
    with exclusive(folder):
        locks = _lock_dead_journals(folder)
        try:
            moved = _move_journals(folder, [lock.path for lock in locks])
        except OSError as error:
            raise write_error(folder, error) from error
        finally:
            for lock in locks:
                lock.close()
        for kind, most in MAX_PARTS.items():
            _merge_small(folder, kind, most)
    return moved


def squeeze(folder: Path) -> None:
    """One part of each kind, as small as it gets: for a store that is to be shipped."""
    compact(folder)
    with exclusive(folder):
        for kind in MAX_PARTS:
            _merge(folder, kind, list(folder.glob(f"{kind}-*.parquet")), SMALLEST)


def _lock_dead_journals(folder: Path) -> list[FileLock]:
    locks = []
    for path in sorted(folder.glob(PATTERN)):
        try:
            locks.append(FileLock(path, create=False))
        except (BlockingIOError, FileNotFoundError):
            continue  # its writer lives, or has just ended without a mark
        except OSError as error:
            raise write_error(path, error) from error
    return locks


def _move_journals(folder: Path, paths: Sequence[Path]) -> int:
    read = Contents(folder)
    readers = {path: JournalReader(path) for path in paths}
    rows: list[RecordRow] = []
    for reader in readers.values():
        for entry in reader.refresh():
            read.take(entry, rows)
    table = drop_repeats(to_table("measurements", rows))
    for path in folder.glob("measurements-*.parquet"):
        table = new_rows(table, Part(path).read(["id"])["id"].combine_chunks())
    add_parts(folder, read.workloads, read.sketches, table)
    for path, reader in readers.items():
        _retire(path, keep=reader.corrupt > 0)
    sync_folder(folder)
    return int(table.num_rows)


def _retire(journal: Path, *, keep: bool) -> None:
    """A journal with unreadable lines is set aside, not deleted: someone may still read them."""
    if keep:
        quarantine = journal.parent / "quarantine"
        quarantine.mkdir(exist_ok=True)
        journal.rename(quarantine / journal.name)
    else:
        journal.unlink()


def _merge_small(folder: Path, kind: str, most: int) -> None:
    """Of more than `most` small parts as few as can be; those of many rows stay as they are."""
    sizes = {path: Part(path).num_rows for path in sorted(folder.glob(f"{kind}-*.parquet"))}
    small = [path for path, rows in sizes.items() if rows <= MOST_ROWS // 2]
    if len(small) <= most:
        return
    together: list[Path] = []
    for path in small:
        if together and sum(sizes[one] for one in together) + sizes[path] > MOST_ROWS:
            _merge(folder, kind, together)
            together = []
        together.append(path)
    _merge(folder, kind, together)


def _merge(folder: Path, kind: str, paths: Sequence[Path], level: int = LEVEL) -> None:
    if not paths:
        return
    tables = [Part(path).read().replace_schema_metadata() for path in paths]
    merged = write_part(folder, kind, drop_repeats(pa.concat_tables(tables)), level=level)
    for path in set(paths) - {merged}:
        path.unlink()
    pa.default_memory_pool().release_unused()
