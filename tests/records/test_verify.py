from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from measurements_support import MeasurementMaker
from tensorese.records.nouns import canonical_json
from tensorese.records.parts import Part, to_table, write_part
from tensorese.records.store import Store
from tensorese.records.verify import verify

pytestmark = pytest.mark.null


@pytest.fixture
def store(tmp_path: Path, make_measurement: MeasurementMaker) -> Store:
    """Two rows in Parquet, one in a journal."""
    store = Store.open(tmp_path, create=True)
    store.append_many([make_measurement(), make_measurement(decisions=(1, 2, 3))])
    store.compact()
    store.append(make_measurement(size=8))
    store.close()
    return store


def rewrite(store: Store, kind: str, **changes: object) -> None:
    (path,) = store.path.glob(f"{kind}-*.parquet")
    rows = Part(path).read().to_pylist()
    path.unlink()
    write_part(store.path, kind, to_table(kind, [{**row, **changes} for row in rows]))


def test_a_sound_store(store: Store) -> None:
    report = verify(store)
    assert report["ok"] and report["problems"] == []
    assert report["checked"]["measurements"] == 3


@pytest.mark.parametrize(
    ("kind", "changes", "says"),
    [
        ("sketches", {"body": "[]"}, "is not what its id says"),
        ("workloads", {"operator": "conv2d"}, "is not what its id says"),
        ("measurements", {"sketch_id": "gone"}, "refers to sketch gone"),
        ("measurements", {"workload_id": "gone"}, "refers to workload gone"),
        ("measurements", {"decisions": [1, 2]}, "has 2 decisions for 3 places"),
        ("measurements", {"decisions": [9, 9, 9]}, "is not the program its id says"),
        ("measurements", {"status": "run_error"}, "has status run_error and latency 0.002"),
    ],
)
def test_tampering_is_found(store: Store, kind: str, changes: dict[str, object], says: str) -> None:
    rewrite(store, kind, **changes)
    report = verify(store)
    assert not report["ok"]
    assert any(says in problem for problem in report["problems"])
    assert canonical_json(report)


@pytest.mark.parametrize("position", [40, 200, -200, -9])
def test_a_flipped_byte_in_a_part_is_found(store: Store, position: int) -> None:
    (path,) = store.path.glob("measurements-*.parquet")
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(bytes(data))
    assert any(path.name in problem for problem in verify(store)["problems"])


def test_a_corrupt_journal_line_is_found(store: Store) -> None:
    (journal,) = store.path.glob("journal-*.log")
    journal.write_bytes(journal.read_bytes().replace(b"matmul", b"matmuL"))
    assert any(f"{journal.name}:1: corrupt" in p for p in verify(store)["problems"])


def test_the_schema_version_is_in_the_parquet_metadata(store: Store) -> None:
    (path,) = store.path.glob("sketches-*.parquet")
    metadata = pa.parquet.read_schema(path).metadata
    assert b'"schema": 1' in metadata[b"tensorese"]


def test_a_store_whose_nouns_lost_rows_says_so(store: Store) -> None:
    (path,) = store.path.glob("sketches-*.parquet")
    path.unlink()
    for journal in store.path.glob("journal-*"):
        journal.unlink()
    write_part(store.path, "sketches", to_table("sketches", []))
    with Store.open(store.path) as opened:
        assert any("measurements refer to 1 sketch rows" in p for p in opened.info()["problems"])
