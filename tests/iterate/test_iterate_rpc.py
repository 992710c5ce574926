"""Rounds measured by a server behind a real tracker on loopback, learnt from here meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iterate_support import TARGET, micro_model, small_tasks, task_list
from rpc_support import OURS, fleet
from tensorese.cli import run
from tensorese.records.store import Store

pytestmark = [pytest.mark.tvm, pytest.mark.slow]


def test_rounds_over_rpc(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    tasks = task_list(tmp_path / "tasks.parquet", small_tasks(2))
    model = micro_model(tmp_path / "micro", "device")
    (tmp_path / "fleet").mkdir()
    with fleet(tmp_path / "fleet", OURS) as devices:
        given = ["iterate", "--tasks", tasks, "--target", TARGET, "--platform", "device"]
        given += ["--model", model, "--out", out, "--rpc-key", OURS, "--json", "--device", "cpu"]
        given += ["--rpc-tracker", f"127.0.0.1:{devices.port}", "--rounds", "3", "--per-task", "3"]
        given += ["--task-share", "1", "--least-gain", "0", "--set", "steps=2", "--set", "tasks=2"]
        assert run(list(map(str, given))) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert events[-1]["rounds"] == 3 and events[-1]["trials"] == 18
    with Store.open(out / "store") as store:
        rows = store.table(["program_id", "status", "host"]).to_pylist()
    assert len({row["program_id"] for row in rows}) == len(rows) == 18
    assert all(row["status"] == "ok" for row in rows)
