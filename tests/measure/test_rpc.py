"""The RPC fleet: a real tracker, real servers on loopback, and what goes wrong with them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

import farm_support as programs
from rpc_support import OURS, STOCK, Fleet, fleet, free_port
from tensorese.errors import MeasureError
from tensorese.measure.base import Candidate
from tensorese.measure.config import FarmConfig
from tensorese.measure.rpc import RpcMeasurer
from tensorese.measure.rpc_config import FleetConfig
from tensorese.records.nouns import Measurement, Status
from tensorese.targets import Target

pytestmark = pytest.mark.tvm


def measurer(config: FleetConfig, **settings: object) -> RpcMeasurer:
    return RpcMeasurer(programs.host_target(), config, FarmConfig(**settings))  # type: ignore[arg-type]


def by_name(
    tuner: RpcMeasurer, batch: dict[str, Candidate]
) -> tuple[dict[str, Measurement], list[str]]:
    """Measurements by name, and the names in the order they arrived."""
    names = list(batch)
    arrived = [(names[index], m) for index, m in tuner.submit(list(batch.values()))]
    return dict(arrived), [name for name, _ in arrived]


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two of TVM's own servers and two of ours behind one tracker."""
    with fleet(tmp_path_factory.mktemp("fleet"), STOCK, STOCK, OURS, OURS) as made:
        yield made


def test_a_killed_server_loses_and_labels_nothing(devices: Fleet) -> None:
    batch = programs.good() + programs.good(32) + programs.good(48)
    found: dict[int, Measurement] = {}
    killed = False
    with measurer(devices.config(STOCK)) as tuner:
        for index, measurement in tuner.submit(batch):
            found[index] = measurement
            if not killed and len({m.host for m in found.values()}) == 2:
                devices.kill_at_work(STOCK, 0)
                killed = True
    assert killed, "both servers must have worked"
    assert devices.count(STOCK) == 1
    assert sorted(found) == list(range(len(batch)))
    assert [m.status for m in found.values()] == [Status.OK] * len(batch)
    # Most often the kill hit a running program, which was then run again; its answer may also
    # have been on its way.
    assert all(m.timing["faults"] <= 1 for m in found.values())
    assert len({m.host for m in list(found.values())[-6:]}) == 1


def test_crashes_and_hangs_are_told_from_the_network(devices: Fleet) -> None:
    good = programs.good()
    batch = {"crash": programs.segfaults(), "hang": programs.hangs()}
    batch |= {f"good {i}": candidate for i, candidate in enumerate(good)}
    config = devices.config(OURS, connect_timeout=1.0)
    with measurer(config, verify="none", run_timeout=2.0) as tuner:
        found, _ = by_name(tuner, batch)
        after = tuner.measure(good[:2])
    assert found["crash"].status is Status.RUN_ERROR
    assert "SIGSEGV" in found["crash"].error
    assert found["hang"].status is Status.RUN_TIMEOUT
    assert "2 times" in found["hang"].error
    assert all(found[f"good {i}"].status is Status.OK for i in range(len(good)))
    assert [m.status for m in after] == [Status.OK, Status.OK]
    assert devices.count(OURS) == 2


def test_a_frozen_server_costs_a_connect_limit(devices: Fleet) -> None:
    os.killpg(devices.servers[OURS][0].pid, signal.SIGSTOP)
    try:
        with measurer(devices.config(OURS, connect_timeout=1.5), verify="none") as tuner:
            found = tuner.measure(programs.good())
    finally:
        os.killpg(devices.servers[OURS][0].pid, signal.SIGCONT)
    assert [m.status for m in found] == [Status.OK] * len(found)
    assert len({m.host for m in found}) == 1


def test_outputs_are_verified_and_the_device_is_named(devices: Fleet) -> None:
    with measurer(devices.config(OURS, max_servers=1), verify="all") as tuner:
        right, wrong = tuner.measure([programs.good()[0], programs.wrong()])
    assert right.status is Status.OK and right.verification["passed"]
    assert wrong.status is Status.WRONG_OUTPUT and not wrong.verification["passed"]
    assert right.host == right.timing["device"]
    assert right.host.startswith("127.0.0.1:")
    assert right.timing["threads"] == len(os.sched_getaffinity(0))
    assert right.build_secs > 0


@pytest.mark.parametrize("threads", [1, 3])
def test_the_device_runs_the_targets_threads(devices: Fleet, threads: int) -> None:
    from tensorese.measure.rpc_worker import RpcWorker, rpc

    target = Target.parse("host", cores=threads)
    settings = {
        "fleet": {"host": "127.0.0.1", "port": devices.port, "key": OURS, "priority": 1},
        "kind": "llvm",
        "scratch": str(devices.folder),
        "target": target.to_json(),
        "device_threads": threads,
    }
    worker = RpcWorker(settings, notify=lambda message: None)
    host, port, key = worker._match([])
    session = rpc.connect(host, port, key, 20.0)
    worker._set_threads(session)
    assert int(session.get_function("runtime.NumThreads")()) == threads


def test_a_key_without_servers_is_named(devices: Fleet) -> None:
    config = devices.config(OURS, key="nobody", patience=1.0)
    with measurer(config) as tuner, pytest.raises(MeasureError, match=r"key 'nobody'.*rpc_server"):
        tuner.measure(programs.good()[:1])


def test_a_missing_tracker_is_named() -> None:
    config = FleetConfig(host="127.0.0.1", port=free_port(), key="k", patience=1.0)
    with measurer(config) as tuner, pytest.raises(MeasureError, match=r"tracker must answer at"):
        tuner.measure(programs.good()[:1])


@pytest.mark.slow
def test_a_crash_that_takes_its_server_along_is_no_label(devices: Fleet) -> None:
    """The first crash ends one server for good, so the others need a second one."""
    if (there := devices.count(STOCK)) < 2:
        devices.add_server(STOCK)
        devices.wait_for(STOCK, there + 1)
    good = programs.good()[:3]
    batch = {"crash": programs.segfaults()}
    batch |= {f"good {i}": candidate for i, candidate in enumerate(good)}
    with measurer(devices.config(STOCK, patience=2.0), verify="none") as tuner:
        found, order = by_name(tuner, batch)
    assert order[-1] == "crash"
    assert found["crash"].status is Status.INFRA_ERROR
    assert "no server is left" in found["crash"].error
    assert all(found[f"good {i}"].status is Status.OK for i in range(len(good)))
