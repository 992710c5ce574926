from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tensorese.errors import ImportFormatError
from tensorese.records.exporters import write_ansor
from tensorese.records.importers import Skipped, read_records
from tensorese.records.nouns import Status
from tensorese.records.store import Store

pytestmark = pytest.mark.null

KEY = '["matmul_layer", 64, 32, 16]'
STEPS = [["SP", 2, 0, 64, [4, 2], 1], ["CA", 1, 2, 3], ["PR", 2, 0, "auto_unroll_max_step$16"]]


def record(
    cost: list[float] | None = None,
    error: int = 0,
    *,
    stamp: int = 1600000000,
    task: list[Any] | None = None,
    version: str = "v0.6",
) -> dict[str, Any]:
    head = [KEY, "llvm -keys=cpu", [8, 64, 64, 0, 0, 0, 0, 0], "", 1, []]
    result = [cost or [0.5, 0.7], error, 1.25, stamp]
    return {"i": [task or head, [[], STEPS]], "r": result, "v": version}


def write_log(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("# a comment\n\n" + "".join(json.dumps(r) + "\n" for r in records))
    return path


def test_a_record_in_full(tmp_path: Path) -> None:
    (m,) = read_records(write_log(tmp_path / "log.json", [record()]), "box")
    assert m.run_secs == (0.5, 0.7) and m.latency == pytest.approx(0.6)
    assert m.program.decisions == (4, 2, 3, 16)
    assert m.platform.name == "box" and m.platform.target == "llvm -keys=cpu"
    assert m.program.workload.operator == "matmul"
    assert m.origin == "imported:log.json"
    assert m.time == 1600000000 and m.timing == {"total_secs": 1.25}
    assert "verification" in m.toolchain["lacks"]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (1, Status.INVALID),
        (2, Status.BUILD_ERROR),
        (3, Status.BUILD_ERROR),
        (4, Status.RUN_ERROR),
        (5, Status.WRONG_OUTPUT),
        (6, Status.BUILD_TIMEOUT),
        (7, Status.RUN_TIMEOUT),
        (8, Status.INFRA_ERROR),
        (99, Status.INFRA_ERROR),
    ],
)
def test_a_failure_is_a_status_and_never_a_time(tmp_path: Path, code: int, status: Status) -> None:
    (m,) = read_records(write_log(tmp_path / "log.json", [record([1e10], code)]), "box")
    assert m.status is status
    assert m.run_secs == () and math.isnan(m.latency)
    assert f"ansor error {code}" in m.error


def test_success_with_a_failure_marker_for_a_time_is_no_success(tmp_path: Path) -> None:
    (m,) = read_records(write_log(tmp_path / "log.json", [record([1e10], 0)]), "box")
    assert m.status is Status.INFRA_ERROR and m.run_secs == ()


@pytest.mark.parametrize("fields", [2, 3, 4, 5, 6])
def test_older_versions_lack_trailing_fields(tmp_path: Path, fields: int) -> None:
    task = record()["i"][0][:fields]
    line = record(task=task, version=f"v0.{fields}")
    log = write_log(tmp_path / "log.json", [line])
    write_ansor(read_records(log, "box"), tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text()) == line


@pytest.mark.parametrize("suffix", [".json", ".json.gz", ".json.zst"])
def test_plain_gzip_and_zstd(tmp_path: Path, suffix: str) -> None:
    text = "".join(json.dumps(record(stamp=n)) + "\n" for n in range(50)).encode()
    path = tmp_path / f"log{suffix}"
    if suffix.endswith("zst"):
        with pa.output_stream(path, compression="zstd") as file:
            file.write(text)
    else:
        path.write_bytes(gzip.compress(text) if suffix.endswith("gz") else text)
    assert [m.time for m in read_records(path, "box")] == list(range(50))


def test_importing_twice_and_importing_the_export_add_nothing(tmp_path: Path) -> None:
    lines = [record(stamp=n) for n in range(5)] + [record([1e10], code, stamp=9) for code in (2, 3)]
    log = write_log(tmp_path / "log.json", lines)
    store = Store.open(tmp_path / "store", create=True)
    assert store.ingest(read_records(log, "box")) == 7
    assert store.ingest(read_records(log, "box")) == 0
    exported = write_ansor(store.measurements(), tmp_path / "out.json")
    assert exported.written == 7
    written = [json.loads(line) for line in (tmp_path / "out.json").read_text().splitlines()]
    assert sorted(written, key=json.dumps) == sorted(lines, key=json.dumps)
    assert store.ingest(read_records(tmp_path / "out.json", "box")) == 0


def test_the_same_program_on_two_platforms_is_one_program(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.json", [record()])
    (one,), (two,) = read_records(log, "k80"), read_records(log, "v100")
    assert one.program.id == two.program.id
    assert one.id != two.id


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"i": [["k"', r"log\.json:1: not a line of JSON"),
        (b"\x7fELF\x00\xff\xfe", "binary data"),
        (b"# only a comment\n", "no line of JSON"),
        (b'{"some": "object"}\n', "neither an Ansor record"),
    ],
)
def test_junk_is_refused_in_one_line(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "log.json"
    path.write_bytes(content)
    with pytest.raises(ImportFormatError, match=says) as refusal:
        list(read_records(path, "box"))
    assert "\n" not in str(refusal.value)


def test_bad_lines_are_skipped_and_named_when_asked(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.json", [record()])
    with path.open("a") as file:
        file.write('{"i": 3, "r": 4}\n{"half": \n')
    with pytest.raises(ImportFormatError, match=r"log\.json:4: JSON, but not an Ansor record"):
        list(read_records(path, "box"))
    skipped = Skipped(allowed=True)
    assert len(list(read_records(path, "box", skipped=skipped))) == 1
    assert [line.split(": ")[0].rsplit(":")[-1] for line in skipped.lines] == ["4", "5"]


def test_a_cut_off_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.json.gz"
    text = b"".join(json.dumps(record(stamp=n)).encode() + b"\n" for n in range(500))
    path.write_bytes(gzip.compress(text)[:-400])
    with pytest.raises(ImportFormatError, match="breaks off or is damaged"):
        list(read_records(path, "box"))


def test_an_unknown_format_gets_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(ImportFormatError, match="did you mean 'ansor'"):
        read_records(tmp_path, "box", "anser")
