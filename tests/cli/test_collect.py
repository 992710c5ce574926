"""`tensorese collect` given nonsense: one line, exit code 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tvm

ONE_CORE = '{"kind":"llvm","num-cores":1}'


def collect(*args: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tensorese", "collect", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--tasks", "nowhere.parquet", "--out", "s"), "does not exist"),
        (("--tasks", "zoo:resnet19", "--out", "s"), "did you mean 'resnet18'"),
        (("--tasks", "x", "--target", "cuda:h200", "--out", "s"), "no cuda device"),
        (("--tasks", "x", "--target", "hots", "--out", "s"), "did you mean 'host'"),
        (("--tasks", "x", "--out", "s", "--minutes", "0"), "must be positive"),
        (("--tasks", "x"), "--out STORE must be given"),
        (("--tasks", "x", "--list", "y"), "--list writes tasks of the zoo"),
    ],
)
def test_wrong_input_is_one_line(
    args: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = collect(*args)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_a_place_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("")
    tasks = Path(__file__).parents[2] / "data" / "tasks.parquet"
    done = collect("--tasks", tasks, "--target", ONE_CORE, "--out", place / "store")
    assert done.returncode == 2, done.stderr
    assert str(place) in done.stderr and "Traceback" not in done.stderr
    if os.geteuid():
        read_only = tmp_path / "read_only"
        read_only.mkdir(mode=0o500)
        assert collect("--tasks", tasks, "--target", ONE_CORE, "--out", read_only).returncode == 2
