from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from measurements_support import MeasurementMaker
from tensorese.errors import StoreError
from tensorese.records import compaction, parts
from tensorese.records.store import Store

pytestmark = pytest.mark.null

KINDS = ("workloads", "sketches", "measurements")


class Killed(BaseException):
    """Stands for kill -9: nothing in the code under test catches it."""


def filled(folder: Path, make: MeasurementMaker, count: int = 3) -> set[str]:
    with Store.open(folder, create=True) as store:
        store.append_many(make(decisions=(n, 1, 1)) for n in range(count))
        return {m.id for m in store.measurements()}


def ids(folder: Path) -> list[str]:
    return sorted(m.id for m in Store.open(folder).measurements())


@pytest.mark.parametrize("step", range(1, 8))
def test_killed_at_any_step_nothing_is_lost_or_doubled(
    tmp_path: Path, make_measurement: MeasurementMaker, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Dies before the n-th change to the folder, then looks, then compacts again."""
    expected = sorted(filled(tmp_path, make_measurement))
    left = step

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                raise Killed
            return real(*args, **kwargs)

        return call

    monkeypatch.setattr(Path, "rename", dying(Path.rename))
    monkeypatch.setattr(Path, "unlink", dying(Path.unlink))
    monkeypatch.setattr(parts.pq, "ParquetWriter", dying(parts.pq.ParquetWriter))
    with pytest.raises(Killed):
        Store.open(tmp_path).compact()
    monkeypatch.undo()
    assert ids(tmp_path) == expected
    Store.open(tmp_path).compact()
    assert ids(tmp_path) == expected
    assert list(tmp_path.glob("journal-*")) == list(tmp_path.glob("*.tmp")) == []
    stored = [parts.Part(path).num_rows for path in tmp_path.glob("measurements-*")]
    assert sum(stored) == len(expected)


def test_live_journals_stay(tmp_path: Path, make_measurement: MeasurementMaker) -> None:
    live = Store.open(tmp_path, create=True)
    first, second = make_measurement(), make_measurement(size=8)
    live.append(first)
    assert Store.open(tmp_path).compact() == 0
    live.append(second)
    assert ids(tmp_path) == sorted([first.id, second.id])
    assert live.compact() == 2


def test_many_parts_become_one_and_nouns_are_stored_once(
    tmp_path: Path, make_measurement: MeasurementMaker
) -> None:
    store = Store.open(tmp_path, create=True)
    most = compaction.MAX_PARTS["measurements"]
    for n in range(most + 1):
        store.append(make_measurement(decisions=(n, 1, 1)))
        store.compact()
    assert len(list(tmp_path.glob("measurements-*"))) == 1
    assert len(list(tmp_path.glob("sketches-*"))) == 1
    assert len(ids(tmp_path)) == most + 1


def test_squeezing_leaves_one_small_part_of_each_kind(
    tmp_path: Path, make_measurement: MeasurementMaker
) -> None:
    store = Store.open(tmp_path, create=True)
    for n in range(3):
        store.append(make_measurement(decisions=(n, 1, 1)))
        store.compact()
    before = ids(tmp_path)
    store.append(make_measurement(decisions=(9, 1, 1)))  # still in a journal
    for _ in range(2):  # the second time nothing is left to do
        store.squeeze()
        assert [len(list(tmp_path.glob(f"{kind}-*"))) for kind in KINDS] == [1, 1, 1]
    assert set(before) < set(ids(tmp_path)) and len(ids(tmp_path)) == 4


def test_a_journal_with_corrupt_lines_is_set_aside(
    tmp_path: Path, make_measurement: MeasurementMaker
) -> None:
    kept = filled(tmp_path, make_measurement)
    (journal,) = tmp_path.glob("journal-*")
    with journal.open("ab") as file:
        file.write(b"00000000 {}\n")
    store = Store.open(tmp_path)
    store.compact()
    assert set(ids(tmp_path)) == kept
    assert (tmp_path / "quarantine" / journal.name).exists()
    assert "corrupt line" in str(store.problems[0])


def test_a_full_disk_during_compaction_loses_nothing(
    tmp_path: Path, make_measurement: MeasurementMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = filled(tmp_path, make_measurement)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(parts.pq, "ParquetWriter", full)
    with pytest.raises(StoreError, match="free disk space"):
        Store.open(tmp_path).compact()
    monkeypatch.undo()
    assert set(ids(tmp_path)) == expected


def test_a_damaged_part_is_named(tmp_path: Path, make_measurement: MeasurementMaker) -> None:
    filled(tmp_path, make_measurement)
    Store.open(tmp_path).compact()
    (part,) = tmp_path.glob("measurements-*")
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(StoreError, match=f"{part.name} must be a part of a store"):
        ids(tmp_path)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, "must be a part of a store"),
        ({"schema": 1, "kind": "measurements", "platforms": ["cpu"]}, "must be a part of a store"),
        ({"schema": 1, "kind": "sketches", "platforms": [], "leaders": 0}, "its columns are not"),
        ({"schema": [], "kind": "measurements"}, "must be a part of a store"),
        ({"schema": 7, "kind": "later"}, "upgrade tensorese"),
    ],
)
def test_a_part_whose_footer_says_something_else_is_named(
    tmp_path: Path, make_measurement: MeasurementMaker, facts: dict[str, Any], said: str
) -> None:
    filled(tmp_path, make_measurement)
    Store.open(tmp_path).compact()
    (part,) = tmp_path.glob("measurements-*")
    table = parts.pq.read_table(part)
    parts.pq.write_table(table.replace_schema_metadata({"tensorese": json.dumps(facts)}), part)
    with pytest.raises(StoreError, match=said):
        ids(tmp_path)


def test_large_parts_stay_apart(
    tmp_path: Path, make_measurement: MeasurementMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is merged fits in memory: a million rows need not."""
    monkeypatch.setattr(compaction, "MOST_ROWS", 8)
    monkeypatch.setitem(compaction.MAX_PARTS, "measurements", 2)
    with Store.open(tmp_path / "one", create=True) as store:
        for batch in range(10):
            store.append_many(make_measurement(decisions=(batch, n, 1)) for n in range(3))
            store.compact()
    rows = [parts.Part(path).num_rows for path in (tmp_path / "one").glob("measurements-*")]
    assert sum(rows) == 30 and max(rows) <= 8 and len(rows) < 8
    with Store.open(tmp_path / "two", create=True) as other:
        assert other.absorb(Store.open(tmp_path / "one")) == 30
        assert other.absorb(Store.open(tmp_path / "one")) == 0
    assert ids(tmp_path / "two") == ids(tmp_path / "one")
    best = Store.open(tmp_path / "two").best("cpu")
    assert [m.latency for m in best.values()] == [2e-3]
