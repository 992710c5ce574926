"""Odd surroundings: one line, or none where there is nowhere to print it; never a traceback."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tensorese.cli import _at_home, run
from tensorese.cli.tune_view import TableView, task_table
from tensorese.collect.collector import CollectConfig
from tensorese.deploy.bench import bench_run
from tensorese.deploy.errors import DeployError
from tensorese.errors import MeasureError
from tensorese.search.loop.config import TuneConfig, TuneError
from tensorese.search.loop.events import TaskLine

pytestmark = pytest.mark.null


def shell(redirections: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = " ".join([sys.executable, "-m", "tensorese", *args, redirections])
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("redirections", "code"),
    [(">/dev/full", 2), (">&-", 0), ("2>&-", 0), (">&- 2>&-", 0), ("2>/dev/full", 0)],
)
def test_closed_and_full_streams(redirections: str, code: int) -> None:
    done = shell(redirections, "--help")
    assert done.returncode == code
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    assert done.stderr.count("\n") == (1 if ">/dev/full" == redirections else 0)


@pytest.mark.parametrize("redirections", ["2>/dev/full", "2>&-"])
def test_a_refusal_without_a_stream_has_its_code(redirections: str) -> None:
    assert shell(redirections, "data", "info", "/nonexistent").returncode == 2


@pytest.mark.parametrize("minutes", ["inf", "nan", "-inf", "1e999"])
def test_minutes_are_finite(minutes: str) -> None:
    with pytest.raises(TuneError, match="positive and finite"):
        TuneConfig(minutes=float(minutes))
    with pytest.raises(MeasureError, match="positive and finite"):
        CollectConfig(minutes=float(minutes))


def test_markup_in_names_is_text() -> None:
    view = TableView()
    view.console.file = io.StringIO()
    line = TaskLine(workload="a", name="[red]x[/blue]", operator="dense", weight=1, flops=1.0)
    view.on_note("a [link=x]note[/] of [/nobody]")
    view.console.print(task_table([line], "cap[/tion]"))
    text = view.console.file.getvalue()
    assert "[red]x[/blue]" in text and "cap[/tion]" in text and "[/nobody]" in text


def test_home_is_found_where_no_shell_looked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert _at_home("--out=~/run") == "--out=/home/me/run" and _at_home("~/a") == "/home/me/a"
    assert _at_home("--tasks=a~b") == "--tasks=a~b" and _at_home("a=~/b") == "a=~/b"
    assert run(["data", "info", "~/none"]) == 2
    assert "/home/me/none" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = '{"model": "m", "network": "n", "target": "{}", "platform": "p", "tasks": []}'
    (tmp_path / "run.json").write_text(head)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(DeployError, match=r"must be writable for bench\.json"):
        bench_run(tmp_path)
