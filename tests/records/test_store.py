from __future__ import annotations

import errno
import json
import math
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from measurements_support import MeasurementMaker, matmul_measurement
from tensorese.errors import StoreError
from tensorese.records.nouns import Status
from tensorese.records.store import Store

pytestmark = pytest.mark.null


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "store", create=True)


def test_everything_in_a_measurement_comes_back(
    store: Store, make_measurement: MeasurementMaker
) -> None:
    full = make_measurement(
        error="", origin="model:tlp:12ab", split="test", build_secs=0.25, host="box",
        timing={"repeats": 3, "cache": "flushed"}, toolchain={"tvm": "0.27"},
        verification={"passed": True}, time=12.5,
    )  # fmt: skip
    store.append(full)
    assert list(store.measurements()) == [full]
    store.compact()
    assert list(store.measurements()) == [full]


def test_what_is_not_a_number_is_not_a_time(
    store: Store, make_measurement: MeasurementMaker
) -> None:
    store.append(make_measurement(status=Status.RUN_TIMEOUT, error="5 s"))
    for _ in range(2):
        (back,) = store.measurements()
        assert math.isnan(back.latency) and math.isnan(back.build_secs)
        assert store.table(["latency"])["latency"].to_pylist() == [None]
        store.compact()


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]),
            st.sampled_from([8, 16, 32]),
            st.sampled_from([Status.OK, Status.RUN_ERROR]),
            st.floats(1e-6, 1.0),
            st.booleans(),
        ),
        max_size=20,
    )
)
def test_best_is_the_minimum_of_its_platform_however_it_is_stored(
    tmp_path_factory: pytest.TempPathFactory, trials: list[tuple[str, int, Status, float, bool]]
) -> None:
    store = Store.open(tmp_path_factory.mktemp("best"), create=True)
    expected: dict[tuple[str, str], float] = {}
    for platform, size, status, secs, then_compact in trials:
        m = matmul_measurement(platform=platform, size=size, status=status, secs=(secs,))
        store.append(m)
        if status is Status.OK:
            key = (platform, m.program.workload.id)
            expected[key] = min(expected.get(key, math.inf), secs)
        if then_compact:
            store.compact()
    for platform in store.platforms():
        best = {(platform, w): m.latency for w, m in store.best(platform).items()}
        assert best == {key: secs for key, secs in expected.items() if key[0] == platform}


def test_records_of_another_platform_never_answer(
    store: Store, make_measurement: MeasurementMaker
) -> None:
    store.append(make_measurement(platform="h200"))
    with pytest.raises(StoreError, match=r"no records of platform 'h20' \(did you mean 'h200'\?\)"):
        store.best("h20")
    with pytest.raises(StoreError, match="it has: h200"):
        list(store.measurements(platform="llvm"))


def test_test_rows_can_be_kept_out(store: Store, make_measurement: MeasurementMaker) -> None:
    fast = make_measurement(secs=(1e-6,), split="test")
    slow = make_measurement(secs=(1e-3,))
    store.append_many([fast, slow])
    for _ in range(2):
        assert list(store.measurements(split="train")) == [slow]
        assert list(store.measurements(split="test")) == [fast]
        assert list(store.best("cpu", split="train").values()) == [slow]
        assert list(store.best("cpu").values()) == [fast]
        store.compact()


def test_filters_by_workload_and_status(store: Store, make_measurement: MeasurementMaker) -> None:
    small, large = make_measurement(size=8), make_measurement(size=16)
    failed = make_measurement(size=16, status=Status.BUILD_ERROR, error="no")
    store.append_many([small, large, failed])
    of_large = store.measurements(workload=large.program.workload.id)
    assert {m.id for m in of_large} == {large.id, failed.id}
    assert [m.id for m in store.measurements(status=Status.BUILD_ERROR)] == [failed.id]


def test_has_forgets_faults_of_the_machinery(
    store: Store, make_measurement: MeasurementMaker
) -> None:
    tried = make_measurement(status=Status.RUN_ERROR)
    lost = make_measurement(decisions=(1, 1, 1), status=Status.INFRA_ERROR)
    store.append_many([tried, lost])
    for _ in range(2):
        assert store.has(tried.program.id, "cpu")
        assert not store.has(tried.program.id, "gpu")
        assert not store.has(lost.program.id, "cpu")
        store.compact()


def test_a_second_reader_sees_appends_as_they_happen(
    store: Store, make_measurement: MeasurementMaker
) -> None:
    other = Store.open(store.path)
    ids = []
    for size in (8, 16, 32):
        m = make_measurement(size=size)
        store.append(m)
        ids.append(m.id)
        assert {seen.id for seen in other.measurements()} == set(ids)
        if size == 16:
            store.compact()


def test_loading_and_merging_twice_adds_nothing(
    tmp_path: Path, store: Store, make_measurement: MeasurementMaker
) -> None:
    some = [make_measurement(decisions=(n, 1, 1)) for n in range(1, 6)]
    assert store.ingest(some) == 5
    assert store.ingest(some) == 0
    merged = Store.open(tmp_path / "merged", create=True)
    assert [merged.absorb(store), merged.absorb(store)] == [5, 0]
    assert {m.id for m in merged.measurements()} == {m.id for m in some}


def test_info_counts_failures_by_class(store: Store, make_measurement: MeasurementMaker) -> None:
    store.append_many(
        [make_measurement()]
        + [make_measurement(status=Status.RUN_ERROR)] * 1
        + [make_measurement(status=Status.BUILD_TIMEOUT) for _ in range(2)]
    )
    facts = store.info()
    assert facts["platforms"]["cpu"] == {
        "measurements": 4,
        "valid": 1,
        "tasks": 1,
        "failures": {"build_timeout": 2, "run_error": 1},
        "lowering": {"": 4},
    }
    assert json.loads(json.dumps(facts)) == facts


def test_opening_what_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        Store.open(tmp_path / "nowhere")
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(StoreError, match="is a file"):
        Store.open(file)
    with pytest.raises(StoreError, match=r"has no store\.json"):
        Store.open(tmp_path)
    with pytest.raises(StoreError, match="holds other files"):
        Store.open(tmp_path, create=True)
    for junk in ("{", '{"schema": Infinity}', "[" * 10_000, "[]", "3", '{"schema": []}'):
        (tmp_path / "store.json").write_text(junk)
        with pytest.raises(StoreError, match="cannot be read"):
            Store.open(tmp_path)


def test_a_store_of_a_newer_schema_is_refused_by_both_numbers(store: Store) -> None:
    (store.path / "store.json").write_text('{"schema": 7}')
    with pytest.raises(StoreError, match=r"schema 7, but this tensorese reads up to 1; upgrade"):
        Store.open(store.path)


def test_a_read_only_folder_reads_and_refuses_to_write(
    store: Store, make_measurement: MeasurementMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(make_measurement())
    store.close()
    real_open = os.open

    def read_only(path: str, flags: int, *rest: int) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise OSError(errno.EROFS, "Read-only file system")
        return real_open(path, flags, *rest)

    monkeypatch.setattr(os, "open", read_only)
    again = Store.open(store.path)
    assert len(list(again.measurements())) == 1
    for attempt in (lambda: again.append(make_measurement()), again.compact):
        with pytest.raises(StoreError, match="must be writable"):
            attempt()


def test_a_measurement_without_its_sketch_is_left_out_and_reported(
    store: Store, make_measurement: MeasurementMaker
) -> None:
    m = make_measurement()
    store.append(m)
    store.close()
    (journal,) = store.path.glob("journal-*.log")
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(line for line in lines if b'"kind":"sketch"' not in line))
    again = Store.open(store.path)
    assert list(again.measurements()) == []
    assert m.program.sketch.id in str(again.problems[0])


def test_a_forked_child_neither_shares_nor_blocks_the_journal(
    store: Store, make_measurement: MeasurementMaker
) -> None:
    mine, childs = make_measurement(), make_measurement(size=8)
    store.append(mine)
    wait_here, go_on = os.pipe()
    if (child := os.fork()) == 0:
        store.append(childs)
        os.read(wait_here, 1)
        os._exit(0)
    try:
        deadline = time.monotonic() + 30
        while store.table(["id"]).num_rows < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert store.compact() == 1  # ours; the child is alive and keeps its own
    finally:
        os.write(go_on, b"x")
        os.waitpid(child, 0)
    assert {m.id for m in store.measurements()} == {mine.id, childs.id}
    assert store.compact() == 1


def test_threads_may_append_together(store: Store, make_measurement: MeasurementMaker) -> None:
    with ThreadPoolExecutor(8) as pool:
        for n in range(200):
            pool.submit(store.append, make_measurement(decisions=(n, 1, 1)))
    assert len(list(store.measurements())) == 200
    assert store.problems == []
