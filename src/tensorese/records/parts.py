"""Parquet parts: immutable files of rows, written whole or not at all.

The best row of every (platform, workload, split) stands in the first row group of its part, so
that the best programs of a store are read without reading the store.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tensorese.errors import StoreError
from tensorese.records.journal import write_error

SCHEMA_VERSION = 1

_TEXT = pa.string()
SCHEMAS: dict[str, Any] = {
    "workloads": pa.schema(
        [(name, _TEXT) for name in ("id", "operator", "args", "attributes", "source", "key")]
        + [("module", _TEXT)]
    ),
    "sketches": pa.schema([(name, _TEXT) for name in ("id", "dialect", "body", "slots")]),
    "programs": pa.schema(
        [(name, _TEXT) for name in ("id", "workload_id", "sketch_id")]
        + [("decisions", pa.list_(pa.int64())), ("tail", _TEXT), ("origin", _TEXT)]
        + [("score", pa.float64())]
    ),
    "measurements": pa.schema(
        [
            ("id", _TEXT),
            ("program_id", _TEXT),
            ("workload_id", _TEXT),
            ("sketch_id", _TEXT),
            ("platform", _TEXT),
            ("target", _TEXT),
            ("status", _TEXT),
            ("latency", pa.float64()),
            ("run_secs", pa.list_(pa.float64())),
            ("decisions", pa.list_(pa.int64())),
            ("tail", _TEXT),
            ("error", _TEXT),
            ("origin", _TEXT),
            ("split", _TEXT),
            ("build_secs", pa.float64()),
            ("timing", _TEXT),
            ("toolchain", _TEXT),
            ("verification", _TEXT),
            ("host", _TEXT),
            ("time", pa.float64()),
        ]
    ),
}
# Nearly every value of these is its own: a dictionary would only be in the way.
_UNIQUE = {"id", "program_id", "latency", "score", "module", "body"}
# Of numbers alike in size the first bytes agree: apart from the others they pack to nothing.
_SECONDS = {"latency", "run_secs.list.element", "build_secs", "time"}
_RECURRING = ["target", "timing", "toolchain", "verification", "host", "tail", "error"]
_SMALL_ROWS = 20_000
MOST_ROWS = 1 << 17
"""Of a part that is written while a store is in use: it fits in memory several times."""
LEVEL, SMALLEST = 9, 19
"""Of compression: as a rule, and for what is sent around (15 % smaller, ten times as slow)."""


def to_table(kind: str, rows: Sequence[dict[str, Any]]) -> Any:
    return pa.Table.from_pylist(list(rows), schema=SCHEMAS[kind])


def write_part(folder: Path, kind: str, table: Any, *, level: int = LEVEL) -> Path:
    """Writes and names the file in one step: a reader sees all of it or nothing."""
    groups = list(_leaders_first(table)) if kind == "measurements" else [table]
    facts = {"kind": kind, "schema": SCHEMA_VERSION, "platforms": _platforms(table)}
    facts["leaders"] = groups[0].num_rows if len(groups) > 1 else 0
    schema = SCHEMAS[kind].with_metadata({"tensorese": json.dumps(facts)})
    scratch = folder / f"{kind}-{uuid.uuid4().hex}.tmp"
    try:
        with pq.ParquetWriter(
            scratch,
            schema,
            compression="zstd",
            compression_level=level,
            use_dictionary=[name for name in schema.names if name not in _UNIQUE | _SECONDS],
            use_byte_stream_split=sorted(_SECONDS) if kind == "measurements" else False,
            write_page_checksum=True,
        ) as writer:
            for group in groups:
                writer.write_table(group.replace_schema_metadata(schema.metadata))
        with scratch.open("rb") as file:
            os.fsync(file.fileno())
        path = folder / f"{kind}-{file_digest(scratch)}.parquet"
        scratch.rename(path)
        sync_folder(folder)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise write_error(folder, error) from error
    return path


def file_digest(path: Path) -> str:
    """What a part is named after, so that a changed byte anywhere in it shows."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]


def sync_folder(folder: Path) -> None:
    """Forces names, not only contents, to the disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _platforms(table: Any) -> list[str]:
    if "platform" not in table.column_names:
        return []
    return sorted(pc.unique(table["platform"]).to_pylist())


def _leaders_first(table: Any) -> list[Any]:
    """`[leaders, rest]`, both sorted; `[rest]` alone when nothing has a latency."""
    if table.num_rows == 0:
        return [table]
    keys = ["platform", "workload_id", "split"]
    sorting = table.select([*keys, "latency", "sketch_id"])
    names = [(key, "ascending") for key in sorting.column_names]
    order = pc.sort_indices(sorting, sort_keys=names)  # failures, without a latency, last
    sorting = sorting.take(order)
    first = np.zeros(table.num_rows, dtype=bool)
    first[0] = True
    for key in keys:
        column = sorting[key].combine_chunks()
        first[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    first &= sorting["latency"].is_valid().to_numpy()
    order = order.to_numpy()
    if not first.any():
        return [table.take(pa.array(order))]
    return [table.take(pa.array(order[first])), table.take(pa.array(order[~first]))]


class Part:
    """One Parquet file; opening it reads the footer only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.file = pq.ParquetFile(path, page_checksum_verification=True)
            facts = json.loads((self.file.schema_arrow.metadata or {})[b"tensorese"])
            check_version(path, int(facts["schema"]))
            self.platforms: list[str] = list(map(str, facts["platforms"]))
            self.n_leaders = int(facts["leaders"])
            self.num_rows = int(self.file.metadata.num_rows)
            schema = SCHEMAS[facts["kind"]]
            if not self.file.schema_arrow.equals(schema):
                raise ValueError(f"its columns are not those of {facts['kind']}")
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException, LookupError, TypeError, ValueError) as error:
            raise StoreError(
                f"{path} must be a part of a store, but it cannot be read ({_brief(error)}); "
                "restore it from a copy or move it away"
            ) from error

    def read(self, columns: Sequence[str] | None = None) -> Any:
        try:
            # Starting threads costs more than reading a small part.
            threads = self.num_rows > _SMALL_ROWS
            return self.file.read(columns=list(columns) if columns else None, use_threads=threads)
        except (OSError, pa.ArrowException) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> StoreError:
        return StoreError(
            f"{self.path} is damaged ({_brief(error)}); restore it from a copy or move it away"
        )

    @cached_property
    def whole(self) -> Any:
        """All of it, kept: for nouns, which are asked for one by one."""
        return self.read()

    @cached_property
    def leaders(self) -> Any:
        """The best row of every (platform, workload, split) of this part, as an Arrow table."""
        if not self.n_leaders:
            return to_table("measurements", [])
        try:
            # Texts that recur, JSON most of them, are not written out for every row.
            file = pq.ParquetFile(
                self.path, read_dictionary=_RECURRING, page_checksum_verification=True
            )
            return file.read_row_group(0, use_threads=self.n_leaders > _SMALL_ROWS)
        except (OSError, pa.ArrowException) as error:
            raise self._damaged(error) from error


def check_version(path: Path, version: int) -> None:
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} has record schema {version}, but this tensorese reads up to "
            f"{SCHEMA_VERSION}; upgrade tensorese"
        )


def _brief(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:120] or type(error).__name__
