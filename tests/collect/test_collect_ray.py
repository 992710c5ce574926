"""Collecting on a real Ray cluster of several nodes on this machine; one of them is killed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collect_support import ONE_CORE, collect, command, task_list, two_tasks
from tensorese.collect import session as sessions
from tensorese.collect.collector import CollectConfig
from tensorese.collect.fleet.ray_cluster import RayConfig
from tensorese.collect.remote import OverRay
from tensorese.errors import MeasureError
from tensorese.records.nouns import Platform
from tensorese.records.store import Store
from tensorese.targets import Target

pytestmark = [
    pytest.mark.tvm,
    pytest.mark.slow,
    pytest.mark.skipif(
        not importlib.util.find_spec("ray"), reason="the extra `ray` is not installed"
    ),
]

_MEMORY = {"object_store_memory": 100 << 20}
_SECS = 480.0


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head that only drives; the nodes that measure are added by the tests."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, **_MEMORY}
    made = Cluster(initialize_head=True, head_node_args=head)
    yield made
    made.shutdown()


def add(cluster: Any, name: str) -> Any:
    return cluster.add_node(num_cpus=1, node_name=name, wait=False, **_MEMORY)


def rows(out: Path) -> list[dict[str, Any]]:
    if not (out / "store.json").exists():
        return []
    with Store.open(out) as store:
        return [
            dict(row) for row in store.table(["id", "program_id", "host", "status"]).to_pylist()
        ]


def wait_until(condition: Callable[[], bool], what: str, log: Path) -> None:
    deadline = time.monotonic() + _SECS
    while not condition():
        assert time.monotonic() < deadline, f"waited until {what}; it said: {log.read_text()}"
        time.sleep(0.1)


def test_a_killed_node_costs_nothing_and_a_late_one_helps(cluster: Any, tmp_path: Path) -> None:
    out, log = tmp_path / "store", tmp_path / "log"
    doomed = add(cluster, "doomed")
    add(cluster, "steady")
    options = ("--tasks", task_list(tmp_path / "tasks.parquet"), "--target", ONE_CORE, "--json")
    limits = ("--per-task", "120", "--minutes", "8", "--platform", "here", "--out", out)
    with (
        log.open("w") as said,
        subprocess.Popen(
            command(*options, *limits, "--ray", cluster.address),
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        ) as process,
    ):
        both = {"doomed", "steady"}
        wait_until(lambda: {row["host"] for row in rows(out)} >= both, "both work", log)
        before = {row["id"] for row in rows(out)}
        cluster.remove_node(doomed, allow_graceful=False)
        add(cluster, "late")
        stdout, _ = process.communicate(timeout=_SECS)
    assert process.returncode == 0, log.read_text()
    result, found = json.loads(stdout), rows(out)
    assert result["by_status"] == {"ok": 240}
    assert len({row["program_id"] for row in found}) == len(found) == result["measured"] == 240
    assert before <= {row["id"] for row in found}
    counts = {name: host["measured"] for name, host in result["hosts"].items()}
    assert set(counts) == {"doomed", "steady", "late"} and sum(counts.values()) == 240
    assert "node doomed is lost" in log.read_text()
    assert "node late joins" in log.read_text()


def test_a_node_of_another_kind_is_refused_by_name(cluster: Any, tmp_path: Path) -> None:
    add(cluster, "stranger")
    cpu = "skylake"
    target = json.dumps({"kind": "llvm", "mcpu": cpu, "num-cores": 1})
    session = sessions.Session(
        target=Target.from_json(target),
        platform=Platform(name="skylake-1c", target=target),
        out=tmp_path / "store",
        config=CollectConfig(minutes=2.0, per_task=2),
    )
    lines: list[str] = []
    place = OverRay(cluster=RayConfig(address=cluster.address, patience=15.0), say=lines.append)
    with pytest.raises(MeasureError, match=r"stranger was refused: its CPU is .* is skylake"):
        sessions.collect(session, two_tasks(), place=place)
    assert any(line.startswith("node stranger is refused: its CPU is") for line in lines)


def test_without_a_cluster_one_is_started_here(tmp_path: Path) -> None:
    tasks = task_list(tmp_path / "tasks.parquet")
    options = ("--tasks", tasks, "--target", ONE_CORE, "--per-task", "3", "--json")
    done = collect(*options, "--ray", "local", "--out", tmp_path / "store")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["by_status"] == {"ok": 6}
    absent = collect(*options, "--ray", "auto", "--out", tmp_path / "store")
    assert absent.returncode == 2 and "must be part of the Ray cluster" in absent.stderr
    assert len(absent.stderr.strip().splitlines()) == 1
