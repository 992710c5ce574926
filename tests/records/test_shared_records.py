"""The public measurements, read whole: round trips, counts and one id for one convolution."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensorese.language.ansor import join_steps, parse_steps, split_steps, write_steps
from tensorese.language.metaschedule import (
    cut_tail,
    join_trace,
    parse_trace,
    split_trace,
    write_trace,
)
from tensorese.records.importers import read_records
from tensorese.records.importers.ansor_workloads import workload_of_key
from tensorese.records.importers.lines import text_lines
from tensorese.records.nouns import Status
from tensorese.records.store import Store

pytestmark = [pytest.mark.shared, pytest.mark.null]

# (records, valid) as the README of the shared data gives them.
ANSOR = {
    "k80": (72_226, 71_483),
    "v100": (116_727, 114_714),
    "mi50": (68_178, 62_392),
    "a100": (4_077, 4_056),
    "rtx3080": (4_077, 4_069),
    "x86": (5_126, 5_112),
    "all_failed_cpu": (7_296, 0),
}
SMALL = [name for name, (records, _) in ANSOR.items() if records < 10_000]


def values(path: Path, every: int) -> Iterator[Any]:
    """Only the lines that are asked for are parsed."""
    return (json.loads(text) for _, text in itertools.islice(text_lines(path), 0, None, every))


@pytest.mark.parametrize("name", ANSOR)
def test_ansor_steps_round_trip(shared_data: Path, name: str) -> None:
    every = 1 if name in SMALL else 41
    for record in values(shared_data / "ansor" / f"{name}.json.zst", every):
        steps = record["i"][1][1]
        assert repr(write_steps(parse_steps(steps))) == repr(steps)
        assert repr(join_steps(*split_steps(steps))) == repr(steps)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(ANSOR) - set(SMALL)))
def test_every_ansor_step_round_trips(shared_data: Path, name: str) -> None:
    for record in values(shared_data / "ansor" / f"{name}.json.zst", 1):
        steps = record["i"][1][1]
        assert write_steps(parse_steps(steps)) == steps
        assert join_steps(*split_steps(steps)) == steps


def check_traces(shared_data: Path, every: int) -> None:
    folder = shared_data / "metaschedule" / "a100_resnet34"
    for _, (trace, *_) in values(folder / "database_tuning_record.json.zst", every):
        assert write_trace(parse_trace(trace), cut_tail(trace)[1]) == trace
        assert join_trace(*split_trace(trace)) == trace


def test_traces_round_trip(shared_data: Path) -> None:
    check_traces(shared_data, every=17)


@pytest.mark.slow
def test_every_trace_round_trips(shared_data: Path) -> None:
    check_traces(shared_data, every=1)


@pytest.mark.parametrize("path", ["conv2d", "matmul", "sparse_dense", "resnet-18", "resnet-50"])
def test_fixtures_of_every_log_version(shared_data: Path, path: str) -> None:
    (file,) = (shared_data / "fixtures").glob(f"{path}*.json")
    for measurement in read_records(file, "fixture"):
        assert measurement.status is Status.OK
        assert 0 < measurement.latency < 1


def keys(path: Path) -> set[str]:
    """Workload keys without parsing the lines: only the first string of each is needed."""
    first = re.compile(r'\{"i": ?\[\["((?:[^"\\]|\\.)*)"')
    found = (first.match(text) for _, text in text_lines(path))
    return {json.loads(f'"{match[1]}"') for match in found if match}


def test_twins_of_k80_v100_and_mi50_have_one_id(shared_data: Path) -> None:
    ids: dict[str, dict[str, str]] = {}
    for name in ("k80", "v100", "mi50"):
        for key in keys(shared_data / "ansor" / f"{name}.json.zst"):
            operator, *arguments = json.loads(key)
            if operator == "conv2d_layer":
                ids.setdefault(str(arguments[:-1]), {})[name] = workload_of_key(key).id
    assert len(ids) == 36
    apart = {shape for shape, by_platform in ids.items() if len(set(by_platform.values())) > 1}
    # These two MI50 keys say padding 0 where the others say SAME of a 3x3: other convolutions.
    assert apart == {
        "[128, 256, 14, 14, 256, 3, 3, 1]",
        "[128, 64, 56, 56, 64, 3, 3, 1]",
    }
    assert all(len(by_platform) == 3 for by_platform in ids.values())


def test_small_ansor_files_are_counted_as_published(shared_data: Path, tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", create=True)
    for name in SMALL:
        path = shared_data / "ansor" / f"{name}.json.zst"
        assert store.ingest(read_records(path, name)) == ANSOR[name][0]
        assert store.ingest(itertools.islice(read_records(path, name), 500)) == 0
    counted = store.info()["platforms"]
    assert {n: (c["measurements"], c["valid"]) for n, c in counted.items()} == {
        name: ANSOR[name] for name in SMALL
    }
    assert max(store.table(["latency"])["latency"].drop_null().to_pylist()) < 1e9


@pytest.mark.slow
def test_all_ansor_files_are_counted_as_published(shared_data: Path, tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store", create=True)
    for name in ANSOR:
        store.ingest(read_records(shared_data / "ansor" / f"{name}.json.zst", name))
    facts = store.info()
    counted = {n: (c["measurements"], c["valid"]) for n, c in facts["platforms"].items()}
    assert counted == ANSOR
    assert [facts["platforms"][n]["tasks"] for n in ("k80", "v100", "mi50")] == [89, 103, 89]
    assert facts["bytes"] < 25e6


def test_the_legacy_database_is_counted_as_published(shared_data: Path) -> None:
    records = list(read_records(shared_data / "metaschedule" / "a100_resnet34", "a100"))
    valid = [m for m in records if m.status is Status.OK]
    assert (len(records), len(valid)) == (20_089, 15_450)
    assert len({m.id for m in records}) == 20_089
    assert len({m.program.workload.id for m in records}) == 20
    assert len({m.program.workload.id for m in valid}) == 19
    assert all(len(m.run_secs) == 3 for m in valid)
