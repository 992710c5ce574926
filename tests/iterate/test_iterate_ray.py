"""Rounds measured by a node of a Ray cluster that is started here, learnt from meanwhile."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from iterate_support import TARGET, micro_model, small_tasks, task_list
from tensorese.cli import run
from tensorese.records.store import Store

pytestmark = [
    pytest.mark.tvm,
    pytest.mark.slow,
    pytest.mark.skipif(
        not importlib.util.find_spec("ray"), reason="the extra `ray` is not installed"
    ),
]


def test_rounds_over_ray(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    out = tmp_path / "run"
    tasks = task_list(tmp_path / "tasks.parquet", small_tasks(2))
    model = micro_model(tmp_path / "micro", "here")
    given = [
        "iterate",
        "--tasks",
        tasks,
        "--target",
        TARGET,
        "--platform",
        "here",
        "--ray",
        "local",
    ]
    given += ["--model", model, "--out", out, "--json", "--device", "cpu", "--rounds", "3"]
    given += ["--per-task", "3", "--task-share", "1", "--least-gain", "0"]
    given += ["--set", "steps=2", "--set", "tasks=2"]
    assert run(list(map(str, given))) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    end = json.loads(lines[-1])
    assert end["rounds"] == 3 and end["trials"] == 18 and (out / "model").is_dir()
    with Store.open(out / "store") as store:
        rows = store.table(["program_id", "status"]).to_pylist()
    assert len({row["program_id"] for row in rows}) == len(rows) == 18
    assert all(row["status"] == "ok" for row in rows)
