"""`tensorese tune --ray` on a real Ray cluster of this machine; one of its nodes is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collect_support import ONE_CORE
from tensorese.records.store import Store
from test_collect_ray import add, cluster, pytestmark  # noqa: F401

torch: Any = pytest.importorskip("torch")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "small.pt2"
    program = torch.export.export(torch.nn.Linear(32, 16).eval(), (torch.zeros(4, 32),))
    torch.export.save(program, path)
    return path


def events(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """Each line of stdout must be one: Ray prints nothing among them."""
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def test_a_killed_node_costs_nothing(
    cluster: Any,  # noqa: F811
    model: Path,
    tmp_path: Path,
) -> None:
    out, log = tmp_path / "run", tmp_path / "log"
    doomed = add(cluster, "doomed")
    add(cluster, "steady")
    command = [sys.executable, "-m", "tensorese", "tune", model, "--target", ONE_CORE, "--json"]
    command += ["--ray", cluster.address, "--platform", "here", "--model", "none"]
    command += ["--trials", "96", "--out", out]
    hosts: set[str] = set()
    told: list[dict[str, Any]] = []
    with (
        log.open("w") as said,
        subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, stderr=said, text=True
        ) as process,
    ):
        for event in events(process):
            told.append(event)
            if event["event"] == "batch" and not hosts:
                hosts = {"doomed"}
                cluster.remove_node(doomed, allow_graceful=False)
    assert process.returncode == 0, log.read_text()
    assert any("node doomed is lost" in event.get("text", "") for event in told)
    with Store.open(out / "store") as store:
        rows = list(store.measurements(platform="here"))
    trials = [m for m in rows if m.origin != "finalist"]
    assert len({m.program.id for m in trials}) == len(trials) == told[-1]["trials"] == 96
    assert {m.status.value for m in rows} <= {"ok", "censored"}
    assert "steady" in {m.host for m in trials} <= {"doomed", "steady"}
    certificate = told[-1]["certificate"]
    assert certificate["device"] == f"nodes of the Ray cluster '{cluster.address}'"
    assert all(v["passed"] for v in certificate["verification"]["against"].values())
