"""`tune` on the nodes of a fleet: what they time as a search wants it, and a whole run that loses
one. The nodes are in this process; Ray's own are in test_tune_ray.py."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tensorese
from nodes_support import Host, Hosts, node_settings
from tensorese import api
from tensorese.collect.fleet import ray_cluster
from tensorese.collect.fleet.measurer import FleetMeasurer
from tensorese.collect.fleet.node import NodeSettings, run_of
from tensorese.collect.fleet.ray_cluster import RayConfig
from tensorese.collect.session import keep_on
from tensorese.measure.base import FINALIST
from tensorese.measure.tuning_farm import IN_NETWORK
from tensorese.records.nouns import Measurement
from tensorese.records.store import Store
from tensorese.search.loop.config import TuneError
from tensorese.search.loop.events import Callback
from tensorese.targets import usable_cores


@pytest.fixture(autouse=True)
def cores() -> Iterator[None]:
    before = usable_cores()
    yield
    keep_on(before)


def samples(measurement: Measurement) -> list[float]:
    return [*measurement.run_secs, *measurement.timing["disturbed"]]


@pytest.mark.tvm
def test_nodes_time_finalists_longer_and_hopeless_programs_shorter() -> None:
    import farm_support as programs

    target = programs.host_target()
    good = [replace(candidate, module="") for candidate in programs.good()]
    finalist = replace(good[0], origin=FINALIST)
    hosts = Hosts(Host(node_settings(target, tunes=True)))
    with FleetMeasurer(hosts, target.platform()) as fleet:
        first, again = (fleet.measure([finalist])[0] for _ in range(2))
        fleet.know_best({finalist.program.workload.id: 1e-9})
        (lost,) = fleet.measure([good[1]])
        assert fleet.builds_at_once == 8, "twice as many are all that the node takes"
    assert [m.origin for m in (first, again)] == [FINALIST] * 2 and first.id != again.id
    assert first.verification["passed"] and again.verification["passed"]
    assert min(len(samples(first)), len(samples(again))) >= 10
    assert first.build_secs == again.build_secs, "not built again"
    assert len(samples(lost)) == 2, "the task's best is known on the node"


class Notes(Callback):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def on_note(self, text: str) -> None:
        self.texts.append(text)


@pytest.mark.tvm
def test_a_run_that_loses_a_node_ends_with_every_program_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch: Any = pytest.importorskip("torch")
    made: list[Hosts] = []
    asked: list[NodeSettings] = []

    def cluster(
        _: RayConfig, settings: NodeSettings, *, planners: int, say: Callable[[str], None]
    ) -> Hosts:
        asked.append(settings)
        assert planners == 1
        say("node steady joins")
        made.append(Hosts(Host(settings, "doomed", dies_at=2), Host(settings, "steady")))
        return made[-1]

    monkeypatch.setattr(ray_cluster, "RayCluster", cluster)
    monkeypatch.setattr(api, "check_reachable", lambda config: None)
    notes, out = Notes(), tmp_path / "run"
    exported = torch.export.export(torch.nn.Linear(32, 16).eval(), (torch.zeros(4, 32),))
    run = tensorese.tune(
        exported,
        trials=40,
        ranker="none",
        platform="cluster",
        fleet=RayConfig(address="10.0.0.2:6379"),
        out=out,
        callbacks=[notes],
    )
    assert made[0].gone == ["doomed"] and (run.state, run.trials) == ("finished", 40)
    with Store.open(out / "store") as store:
        rows = list(store.measurements(platform="cluster"))
    trials = [m for m in rows if m.origin != FINALIST]
    assert len({m.program.id for m in trials}) == len(trials) == 40
    assert {m.status.value for m in rows} <= {"ok", "censored"}
    assert {m.host for m in trials} == {"doomed", "steady"}
    assert len({m.id for m in rows}) == len(rows) > 40, "finalists were timed again"
    assert asked[0].tunes and asked[0].farm == IN_NETWORK, "weights turn on the nodes"
    assert asked[0].run == run_of(out / "store", "cluster")
    assert "node steady joins" in notes.texts
    certificate = json.loads((out / "certificate.json").read_text())
    assert certificate["device"] == "nodes of the Ray cluster '10.0.0.2:6379'"
    assert "latency" not in certificate, "the library is not timed on the wrong machine"
    assert all(v["passed"] for v in certificate["verification"]["against"].values())
    assert certificate["device"].replace("'", "&#x27;") in (out / "report.html").read_text()


@pytest.mark.null
def test_a_cluster_without_trials_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TuneError, match=r"nodes of the Ray cluster 'auto' are given; leave one"):
        api.tune("zoo:resnet18", trials=0, fleet=RayConfig(address="auto"), out=tmp_path / "run")


@pytest.mark.null
def test_what_ray_prints_stays_out_of_results(monkeypatch: pytest.MonkeyPatch) -> None:
    into = io.StringIO()
    ours: Any = ray_cluster._Ours(into)
    monkeypatch.setattr("sys.stdout", ours)
    print("a result")
    thread = threading.Thread(target=lambda: print("a log"), name="ray_listen_error_messages")
    thread.start()
    thread.join()
    assert into.getvalue() == "a result\n"
