"""Programs nobody has measured: written, read, kept once, and there after every compaction."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from measurements_support import MeasurementMaker, matmul_measurement
from tensorese.collect.session import programs_of
from tensorese.records.nouns import Status
from tensorese.records.programs import UnmeasuredProgram
from tensorese.records.store import Store
from tensorese.records.verify import verify

pytestmark = pytest.mark.null


def proposed(rows: int, *, size: int = 64, first: int = 0) -> list[UnmeasuredProgram]:
    return [
        UnmeasuredProgram(
            program=matmul_measurement(size=size, decisions=(8, first + k, 16)).program,
            origin="evolution:online",
            score=float(k) if k % 2 else math.nan,
        )
        for k in range(rows)
    ]


def ids(store: Store) -> list[str]:
    return sorted(one.program.id for one in store.programs())


def test_what_is_written_is_read(tmp_path: Path) -> None:
    written = proposed(5)
    with Store.open(tmp_path / "s", create=True) as store:
        assert store.add_programs(written) == 5
    with Store.open(tmp_path / "s") as store:
        read = {one.program.id: one for one in store.programs()}
        assert store.info()["programs"] == 5 and store.info()["measurements"] == 0
    for one in written:
        same = read[one.program.id]
        assert (same.program, same.origin) == (one.program, one.origin)
        assert same.score == one.score or (math.isnan(same.score) and math.isnan(one.score))


def test_a_program_is_kept_once_as_it_was_first_written(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s", create=True) as store:
        assert store.add_programs([*proposed(3), *proposed(3)]) == 3
        later = [
            UnmeasuredProgram(program=one.program, origin="model:other", score=9.0)
            for one in proposed(4)
        ]
        assert store.add_programs(later) == 1
        assert store.add_programs(later) == 0
        assert sorted(one.origin for one in store.programs()) == [
            *["evolution:online"] * 3,
            "model:other",
        ]


def test_compaction_and_squeeze_keep_every_program(
    tmp_path: Path, make_measurement: MeasurementMaker
) -> None:
    with Store.open(tmp_path / "s", create=True) as store:
        for part in range(12):  # more parts than a store keeps apart
            store.add_programs(proposed(3, first=3 * part))
        store.append(make_measurement())
        expected = ids(store)
        assert len(expected) == 36
        assert len(list((tmp_path / "s").glob("programs-*.parquet"))) <= 8
        store.compact()
        assert ids(store) == expected
        store.squeeze()
        assert ids(store) == expected
        assert len(list((tmp_path / "s").glob("programs-*.parquet"))) == 1
        assert len(list(store.measurements())) == 1
        report = verify(store)
        assert report["ok"] and report["checked"]["programs"] == 36
    with Store.open(tmp_path / "s") as store:
        assert ids(store) == expected


def test_a_store_takes_over_another_ones_programs(tmp_path: Path) -> None:
    with (
        Store.open(tmp_path / "a", create=True) as one,
        Store.open(tmp_path / "b", create=True) as other,
    ):
        one.add_programs(proposed(2))
        other.add_programs(proposed(4))
        assert one.absorb(other) == 0
        assert ids(one) == ids(other)


def test_by_workload_and_by_what_was_tried(
    tmp_path: Path, make_measurement: MeasurementMaker
) -> None:
    small, large = proposed(2), proposed(2, size=128)
    with Store.open(tmp_path / "s", create=True) as store:
        store.add_programs([*small, *large])
        found = list(store.programs(workload=large[0].program.workload.id))
        assert {one.program.id for one in found} == {one.program.id for one in large}
        decisions = small[0].program.decisions
        store.append(make_measurement(decisions=decisions, status=Status.BUILD_ERROR))
        assert len(list(store.programs(untried_on="cpu"))) == 3
        assert len(list(store.programs(untried_on="elsewhere"))) == 4


def test_a_damaged_part_is_found(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s", create=True) as store:
        store.add_programs(proposed(2))
        (part,) = (tmp_path / "s").glob("programs-*.parquet")
        part.write_bytes(part.read_bytes()[:-40] + b"x" * 40)
        assert not verify(store)["ok"]


def test_collecting_takes_them_after_what_was_measured(
    tmp_path: Path, make_measurement: MeasurementMaker
) -> None:
    listed = proposed(4)
    with Store.open(tmp_path / "s", create=True) as store:
        store.append(make_measurement(decisions=listed[1].program.decisions))
        store.add_programs(listed)
        given = programs_of(store)
    assert [one.program for one in given][:2] == [listed[k].program.id for k in (1, 3)]
    assert len(given) == len({one.program for one in given}) == 4
    assert {one.origin for one in given[1:]} == {"evolution:online"}
