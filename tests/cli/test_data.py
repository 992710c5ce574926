from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from measurements_support import MeasurementMaker, matmul_measurement
from tensorese.cli import run
from tensorese.records import parts
from tensorese.records.nouns import Status
from tensorese.records.store import Store

pytestmark = pytest.mark.null

STEPS = [["SP", 2, 0, 64, [4, 2], 1], ["AN", 2, 0, 3]]


def ansor_log(path: Path, count: int = 3) -> Path:
    lines = []
    for n in range(count):
        failed = n % 3 == 2
        task = ['["matmul_layer", 64, 32, 16]', "llvm", [8, 64], "", 1, []]
        result = [[1e10 if failed else 0.1 + n], 4 if failed else 0, 1.0, 1600000000 + n]
        lines.append(json.dumps({"i": [task, [[], STEPS]], "r": result, "v": "v0.6"}) + "\n")
    path.write_text("".join(lines))
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return ansor_log(tmp_path / "log.json")


@pytest.fixture
def store(tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "store"
    assert run(["data", "import", str(log), "--out", str(path), "--platform", "box"]) == 0
    capsys.readouterr()
    return path


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("tensorese: ") and err.count("\n") == 1
    return err


def contents(store: Path) -> list[str]:
    return sorted(m.id for m in Store.open(store).measurements())


def test_import_says_what_it_did(
    tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["data", "import", str(log), "--out", str(tmp_path / "s"), "--platform", "box"]
    assert run(arguments) == 0
    assert "3 records read, 2 valid; 3 new" in capsys.readouterr().out
    assert run([*arguments, "--json"]) == 0
    result = printed(capsys)
    assert (result["records"], result["valid"], result["added"]) == (3, 2, 0)


def test_a_platform_is_of_one_kind(
    tmp_path: Path, store: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(store)
    other = tmp_path / "gpu.json"
    other.write_text(log.read_text().replace('"llvm"', '"cuda -keys=cuda,gpu"'))
    arguments = ["data", "import", str(other), "--out", str(store), "--platform"]
    line = refused(capsys, [*arguments, "box"])
    assert "holds cuda records and 'box' stands for llvm" in line and "--platform" in line
    assert contents(store) == before
    assert run([*arguments, "card"]) == 0


def test_info(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "info", str(store)]) == 0
    assert "box: 3 measurements (2 valid), 1 tasks; 1 run_error" in capsys.readouterr().out
    assert run(["data", "info", str(store), "--json"]) == 0
    assert printed(capsys)["platforms"]["box"]["failures"] == {"run_error": 1}


def test_export_to_ansor_is_the_log_again(
    tmp_path: Path, store: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    arguments = ["data", "export", str(store), "--format", "ansor", "--out", str(out)]
    assert run([*arguments, "--platform", "box", "--json"]) == 0
    assert printed(capsys)["written"] == 3
    before, after = ([json.loads(x) for x in p.read_text().splitlines()] for p in (log, out))
    assert sorted(before, key=str) == sorted(after, key=str)


def test_export_says_what_a_format_cannot_carry(
    tmp_path: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "db")
    assert run(["data", "export", str(store), "--format", "metaschedule", "--out", out]) == 0
    assert "3 left out: not a MetaSchedule record" in capsys.readouterr().out


def test_merge_keeps_each_measurement_once(
    tmp_path: Path,
    store: Path,
    make_measurement: MeasurementMaker,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Store.open(tmp_path / "other", create=True) as other:
        other.absorb(Store.open(store))
        other.append(make_measurement(status=Status.RUN_ERROR))
    sources = [str(store), str(tmp_path / "other")]
    assert run(["data", "merge", *sources, "--out", str(tmp_path / "all"), "--json"]) == 0
    result = printed(capsys)
    assert (result["added"], result["measurements"]) == (4, 4)


def test_verify_exits_1_when_something_is_wrong(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["data", "verify", str(store)]) == 0
    assert "sound" in capsys.readouterr().out
    (part,) = store.glob("measurements-*.parquet")
    part.write_bytes(part.read_bytes()[:-20])
    assert run(["data", "verify", str(store), "--json"]) == 1
    assert part.name in printed(capsys)["problems"][0]


def test_marked_rows_stay_out_of_training(
    tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "s"
    arguments = ["data", "import", str(log), "--out", str(out), "--platform", "box"]
    assert run([*arguments, "--split", "test"]) == 0
    assert list(Store.open(out).measurements(split="train")) == []
    assert len(list(Store.open(out).measurements(split="test"))) == 3


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "must exist, but"),
        (b"\x00\xffELF\x00", "binary data"),
        (b'{"i": [["[\\"matmul', "not a line of JSON"),
        (b"[1, 2, 3]\n", "neither an Ansor record"),
    ],
    ids=["missing", "binary", "half a line", "other JSON"],
)
def test_bad_files_are_refused_and_lose_nothing(
    tmp_path: Path,
    store: Path,
    content: bytes | None,
    says: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = contents(store)
    bad = tmp_path / "bad.json"
    if content is not None:
        bad.write_bytes(content)
    arguments = ["data", "import", str(bad), "--out", str(store), "--platform", "box"]
    assert says in refused(capsys, arguments)
    assert contents(store) == before


def test_half_a_line_at_the_end_of_a_good_log(
    tmp_path: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.write_text(log.read_text()[:-30])
    arguments = ["data", "import", str(log), "--out", str(tmp_path / "s"), "--platform", "box"]
    assert f"{log}:3: not a line of JSON" in refused(capsys, arguments)
    assert run([*arguments, "--skip-bad", "--json"]) == 0
    result = printed(capsys)
    assert result["added"] == 2 and f"{log}:3:" in result["skipped"][0]


def test_a_folder_that_is_no_database(
    tmp_path: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["data", "import", str(tmp_path), "--out", str(store), "--platform", "box"]
    assert "has no database_workload.json" in refused(capsys, arguments)


def test_stores_that_cannot_be_opened(
    tmp_path: Path, log: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "does not exist" in refused(capsys, ["data", "info", str(tmp_path / "no")])
    assert "is a file" in refused(capsys, ["data", "verify", str(log)])
    (store / "store.json").write_text('{"schema": 99}')
    says = refused(capsys, ["data", "info", str(store)])
    assert "schema 99" in says and "up to 1" in says


def test_an_unknown_platform(
    tmp_path: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "x.json")
    arguments = ["data", "export", str(store), "--format", "ansor", "--out", out]
    assert "did you mean 'box'?" in refused(capsys, [*arguments, "--platform", "bix"])
    assert not Path(out).exists()


def test_a_full_disk_loses_nothing(
    tmp_path: Path,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = contents(store)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    more = ansor_log(tmp_path / "more.json", count=9)
    arguments = ["data", "import", str(more), "--out", str(store), "--platform", "box"]
    with monkeypatch.context() as patched:
        patched.setattr(parts.pq, "ParquetWriter", full)
        assert "needs free disk space" in refused(capsys, arguments)
    assert contents(store) == before
    assert run(arguments) == 0
    assert len(contents(store)) == 9


def test_publish_adds_stores_and_writes_the_card(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.open(tmp_path / "raw", create=True) as store:
        store.append(matmul_measurement(origin="random"))
    (tmp_path / "remarks.md").write_text("Measured at night.\n")
    out = tmp_path / "dataset"
    options = ["--title", "One program", "--remarks", str(tmp_path / "remarks.md"), "--json"]
    assert run(["data", "publish", str(tmp_path / "raw"), "--out", str(out), *options]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["added"], result["card"]) == (1, str(out / "card.md"))
    text = (out / "card.md").read_text()
    assert text.startswith("# One program\n") and "Measured at night." in text
    options = ["--card", str(tmp_path / "elsewhere.md"), "--licence", "CC0"]
    assert run(["data", "publish", str(tmp_path / "raw"), "--out", str(out), *options]) == 0
    assert "0 measurements added" in capsys.readouterr().out
    assert "CC0; the code" in (tmp_path / "elsewhere.md").read_text()


@pytest.mark.parametrize("options", [[], ["--tasks", "no.parquet"], ["--remarks", "no.md"]])
def test_publish_refuses_in_one_line(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "raw"
    if options:
        with Store.open(store, create=True) as opened:
            opened.append(matmul_measurement())
    assert run(["data", "publish", str(store), "--out", str(tmp_path / "out"), *options]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("tensorese: ") and "\n" not in said
    assert not (tmp_path / "out").exists()
