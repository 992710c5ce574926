"""Odd lines among good ones: refused with their number, or skipped and counted."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import pyarrow as pa
import pytest

from measurements_support import MeasurementMaker
from tensorese.errors import ImportFormatError
from tensorese.records.importers import Skipped, of_one_kind, read_records
from tensorese.records.importers import lines as reading
from tensorese.records.nouns import Status
from tensorese.records.store import Store

pytestmark = pytest.mark.null

GOOD = (
    '{"i": [["[\\"matmul_layer\\", 64, 32, 16]", "llvm -keys=cpu", [8], "", 1, []], [[], '
    '[["SP", 2, 0, 64, [4, 2], 1], ["CA", 1, 2, 3]]]], "r": [[0.5, 0.7], 0, 1.25, 16], "v": "v0.6"}'
)
DEEP = "[" * 600 + "]" * 600
BAD = {
    "a decision of more than 64 bits": GOOD.replace("[4, 2]", f"[4, {2**63}]"),
    "a shape of more than 64 bits": GOOD.replace("64, 32", f"{2**70}, 32"),
    "a target that is no text": GOOD.replace('"llvm -keys=cpu"', "7"),
    "a target that is a list": GOOD.replace('"llvm -keys=cpu"', "[1]"),
    "a target that is half a character": GOOD.replace("llvm -keys", "\\ud800"),
    "a cost that is NaN": GOOD.replace("0.5", "NaN"),
    "a cost that is infinite": GOOD.replace("0.5", "1e999"),
    "a cost of 400 digits": GOOD.replace("0.5", "1" * 400),
    "a time that is infinite": GOOD.replace("16],", "Infinity],"),
    "a total that is NaN": GOOD.replace("1.25", "NaN"),
    "an error that is half a character": GOOD.replace("], 0, 1.25", '], "\\ud800", 1.25'),
    "a version that is NaN": GOOD.replace('"v0.6"', "NaN"),
    "a deep key": GOOD.replace("64, 32", DEEP.replace('"', "")),
    "a deep line": GOOD.replace("[8]", "[" * 100_000),
    "a deep step": GOOD.replace("[4, 2]", "[" * 900 + "]" * 900),
    "a key that is no list": GOOD.replace('"[\\"matmul_layer\\", 64, 32, 16]"', '"7"'),
    "an integer of 5000 digits": GOOD.replace("[4, 2]", f"[4, {'9' * 5000}]"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_odd_line_is_named_or_skipped(name: str, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(f"{GOOD}\n{BAD[name]}\n{GOOD}\n")
    skipped = Skipped(allowed=True)
    with Store.open(tmp_path / "store", create=True) as store:
        added = store.ingest(of_one_kind(read_records(path, "box", skipped=skipped)))
        rows = list(store.measurements())
    assert (added, len(rows), len(skipped.lines)) == (1, 1, 1)
    assert ":2: " in skipped.lines[0]
    with pytest.raises(ImportFormatError, match=r"log\.json:2: .*--skip-bad") as caught:
        list(read_records(path, "box"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cost", ["0.0", "-0.5"])
def test_no_time_at_all_is_no_label(cost: str, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(GOOD.replace("0.5, 0.7", cost) + "\n")
    (m,) = read_records(path, "box")
    assert m.status is Status.INFRA_ERROR and m.run_secs == () and math.isnan(m.latency)


def test_a_measurement_without_time_has_no_latency(make_measurement: MeasurementMaker) -> None:
    assert math.isnan(make_measurement(secs=(0.0,)).latency)


def test_a_line_and_a_packed_file_have_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_LINE", 3 << 20)
    with gzip.open(tmp_path / "long.json.gz", "wb") as file:
        file.write(b" " * (8 << 20))
    with pytest.raises(ImportFormatError, match=r"gz:1: a line has at most"):
        list(read_records(tmp_path / "long.json.gz", "box", "ansor"))
    monkeypatch.setattr(reading, "_PACKED", 4 << 20)
    with pa.output_stream(str(tmp_path / "bomb.json.zst"), compression="zstd") as stream:
        for _ in range(64):
            stream.write(b"\n" * (1 << 20))
    with pytest.raises(ImportFormatError, match=r"no more than 2000 times its size"):
        list(read_records(tmp_path / "bomb.json.zst", "box", "ansor"))


def test_a_database_names_its_workloads_by_line(tmp_path: Path) -> None:
    folder = tmp_path / "database"
    folder.mkdir()
    (folder / "database_workload.json").write_text("")
    (folder / "database_tuning_record.json").write_text(
        json.dumps([-1, [[], [1.0], {}, []]]) + "\n"
    )
    with pytest.raises(ImportFormatError, match="not a MetaSchedule record"):
        list(read_records(folder, "box"))
