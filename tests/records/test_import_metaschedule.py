from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tensorese.errors import ImportFormatError
from tensorese.records.exporters import write_metaschedule
from tensorese.records.importers import read_records
from tensorese.records.modules import encode_blob
from tensorese.records.nouns import Status
from tensorese.records.store import Store

pytestmark = pytest.mark.null

LEGACY = {
    "root": 1,
    "nodes": [
        {"type_key": ""},
        {"type_key": "tir.Block", "attrs": {"name_hint": "3"}},
        {"type_key": "tir.Block", "attrs": {"name_hint": "4"}},
        {"type_key": "runtime.String", "repr_str": "root"},
        {"type_key": "runtime.String", "repr_str": "C"},
    ],
}
CURRENT = {
    "root_index": 1,
    "nodes": [
        {"type": "ffi.String", "data": "C"},
        {"type": "s_tir.SBlock", "data": {"name_hint": 0}},
    ],
}
TARGET = {"kind": "llvm", "keys": ["cpu"]}
ARGS = [["TENSOR", "float32", [8, 4]], ["TENSOR", "float32", [8]]]


def trace(tile: list[int], get_block: str = "GetSBlock") -> list[Any]:
    return [
        [
            [get_block, [], ["C", "main"], ["b0"]],
            ["GetLoops", ["b0"], [], ["l1"]],
            ["SamplePerfectTile", ["l1"], [2, 64], ["v2", "v3"]],
            ["EnterPostproc", [], [], []],
        ],
        [[2, tile]],
    ]


def write_database(
    folder: Path, module: dict[str, Any], records: list[Any], key: str = "123456789"
) -> Path:
    folder.mkdir()
    workload = json.dumps([key, encode_blob(json.dumps(module))])
    (folder / "database_workload.json").write_text(workload + "\n")
    lines = [json.dumps([0, record]) for record in records]
    (folder / "database_tuning_record.json").write_text("\n".join(lines) + "\n")
    return folder


def test_a_legacy_database_is_read_without_tvm(tmp_path: Path) -> None:
    records = [
        [trace([2, 4], "GetBlock"), [0.5, 0.25, 0.125], TARGET, ARGS],
        [trace([4, 2], "GetBlock"), [1e10], TARGET, ARGS],
    ]
    ok, failed = read_records(write_database(tmp_path / "db", LEGACY, records), "box")
    workload = ok.program.workload
    assert (workload.operator, workload.source, workload.module) == ("C", "metaschedule-legacy", "")
    assert [a.shape for a in workload.args] == [(8, 4), (8,)]
    assert ok.program.decisions == (2, 4) and ok.latency == 0.25
    assert "EnterPostproc" in ok.program.tail
    assert failed.status is Status.RUN_ERROR and math.isnan(failed.latency)
    assert failed.program.sketch.id == ok.program.sketch.id
    assert json.loads(ok.platform.target) == TARGET


def test_export_and_import_give_everything_back(tmp_path: Path) -> None:
    records = [
        [trace([2, 4]), [0.5, 0.25], TARGET, ARGS],
        [trace([2, 4]), [0.5, 0.25], TARGET, ARGS],
        [trace([8, 1]), [1e10], TARGET, ARGS],
    ]
    database = write_database(tmp_path / "db", CURRENT, records)
    store = Store.open(tmp_path / "store", create=True)
    assert store.ingest(read_records(database, "box")) == 3
    exported = write_metaschedule(store.measurements(), tmp_path / "out")
    assert exported.written == 3
    assert store.ingest(read_records(tmp_path / "out", "box")) == 0
    for name in ("database_workload.json", "database_tuning_record.json"):
        before, after = ((p / name).read_text().splitlines() for p in (database, tmp_path / "out"))
        assert sorted(map(json.loads, before), key=str) == sorted(map(json.loads, after), key=str)


def test_what_0_27_cannot_load_is_not_exported(tmp_path: Path) -> None:
    database = write_database(tmp_path / "db", LEGACY, [[trace([2, 4]), [0.5], TARGET, ARGS]])
    exported = write_metaschedule(read_records(database, "box"), tmp_path / "out")
    assert exported.written == 0
    assert dict(exported.skipped) == {"its module is of an older TVM, which 0.27 cannot load": 1}


def test_a_missing_hash_is_asked_for(tmp_path: Path) -> None:
    records = [[trace([2, 4]), [0.5], TARGET, ARGS]]
    database = write_database(tmp_path / "db", CURRENT, records, key="mm")
    assert write_metaschedule(read_records(database, "box"), tmp_path / "no").written == 0
    write_metaschedule(read_records(database, "box"), tmp_path / "out", lambda module: "77")
    assert json.loads((tmp_path / "out" / "database_workload.json").read_text())[0] == "77"


def test_records_that_were_never_measured_are_left_out(tmp_path: Path) -> None:
    database = write_database(tmp_path / "db", CURRENT, [[trace([2, 4]), None, TARGET, ARGS]])
    assert list(read_records(database, "box")) == []


def test_half_a_database_is_refused(tmp_path: Path) -> None:
    database = write_database(tmp_path / "db", CURRENT, [])
    (database / "database_workload.json").unlink()
    with pytest.raises(ImportFormatError, match=r"has no database_workload\.json"):
        read_records(database, "box")


def test_a_record_of_an_unknown_workload_is_named(tmp_path: Path) -> None:
    database = write_database(tmp_path / "db", CURRENT, [])
    (database / "database_tuning_record.json").write_text(
        json.dumps([5, [trace([2, 4]), [0.5], TARGET, ARGS]]) + "\n"
    )
    with pytest.raises(ImportFormatError, match=r"record\.json:1: JSON, but not a MetaSchedule"):
        list(read_records(database, "box"))
