"""Collecting over a real tracker and two real servers on loopback, one of them killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collect_support import ONE_CORE, collect, task_list, two_tasks
from rpc_support import OURS, Fleet, fleet
from tensorese.collect import session as sessions
from tensorese.collect.collector import CollectConfig, Tally
from tensorese.collect.remote import OverRpc
from tensorese.errors import MeasureError
from tensorese.records.nouns import Platform
from tensorese.records.store import Store
from tensorese.targets import Target

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("fleet"), OURS, OURS) as made:
        yield made


def session(out: Path, per_task: int) -> sessions.Session:
    return sessions.Session(
        target=Target.from_json(ONE_CORE),
        platform=Platform(name="device", target=ONE_CORE),
        out=out,
        config=CollectConfig(minutes=3.0, per_task=per_task, random_share=1.0),
    )


def rows(out: Path) -> list[dict[str, Any]]:
    with Store.open(out) as store:
        found: list[dict[str, Any]] = store.table().to_pylist()
        assert not store.problems
    return found


class Killer:
    """Kills the first server with a program inside, once both have answered."""

    def __init__(self, devices: Fleet) -> None:
        self.devices = devices
        self.done = False

    def __call__(self, tally: Tally) -> None:
        if not self.done and len(tally.hosts) == 2:
            self.done = True
            self.devices.kill_at_work(OURS, 0)


def test_a_killed_server_costs_nothing_and_the_run_is_resumed(
    devices: Fleet, tmp_path: Path
) -> None:
    out = tmp_path / "store"
    killer = Killer(devices)
    place = OverRpc(fleet=devices.config(OURS))
    tally = sessions.collect(session(out, 14), two_tasks(), (), killer, place)
    assert killer.done, "both servers must have worked"
    assert tally.by_status == {"ok": 28}
    found = rows(out)
    assert len({row["program_id"] for row in found}) == len(found) == 28
    assert {row["host"] for row in found} == set(tally.hosts)
    assert sum(row["split"] == "test" for row in found) == 14

    options = ("--tasks", task_list(tmp_path / "tasks.parquet"), "--target", ONE_CORE, "--json")
    tracker = ("--rpc-tracker", f"127.0.0.1:{devices.port}", "--rpc-key", OURS)
    there = (*tracker, "--platform", "device")
    more = collect(*options, *there, "--out", out, "--per-task", "16", "--minutes", "2")
    assert more.returncode == 0, more.stderr
    result = json.loads(more.stdout)
    assert [host["measured"] for host in result["hosts"].values()] == [result["measured"]] == [4]
    assert len({row["program_id"] for row in rows(out)}) == 32

    devices.kill(devices.servers[OURS][1])
    devices.wait_for(OURS, 0)
    place = OverRpc(fleet=devices.config(OURS, patience=1.0))
    with pytest.raises(MeasureError, match=r"must have a server of key .*; start one with"):
        sessions.collect(session(out, 20), two_tasks(), place=place)
    assert len(rows(out)) == 32
