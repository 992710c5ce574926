"""The RPC fleet: a real tracker, real servers on loopback, and what goes wrong with them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import farm_support as programs
import pytest
from rpc_support import OURS, STOCK, Fleet, fleet, free_port

from tensorese.errors import MeasureError
from tensorese.measure.base import Candidate
from tensorese.measure.config import FarmConfig
from tensorese.measure.rpc import RpcMeasurer
from tensorese.measure.rpc_config import FleetConfig
from tensorese.records.nouns import Measurement, Status
from tensorese.targets import parse_target

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
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("ours"), OURS, OURS) as made:
        yield made


def test_a_killed_server_loses_and_labels_nothing(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    batch = programs.good() + programs.good(32) + programs.good(48)
    with fleet(tmp_path_factory.mktemp("stock"), STOCK, STOCK) as stock:
        found: dict[int, Measurement] = {}
        with measurer(stock.config()) as tuner:
            for index, measurement in tuner.submit(batch):
                found[index] = measurement
                if len(found) == 4:
                    assert len({m.host for m in found.values()}) == 2, "both servers must work"
                    stock.kill(stock.servers[0])
        assert stock.count() == 1
    assert sorted(found) == list(range(len(batch)))
    assert [m.status for m in found.values()] == [Status.OK] * len(batch)
    assert len({m.host for m in list(found.values())[-6:]}) == 1


def test_crashes_and_hangs_are_told_from_the_network(ours: Fleet) -> None:
    good = programs.good()
    batch = {"crash": programs.segfaults(), "hang": programs.hangs()}
    batch |= {f"good {i}": candidate for i, candidate in enumerate(good)}
    config = ours.config(connect_timeout=1.0)
    with measurer(config, verify="none", run_timeout=2.0) as tuner:
        found, _ = by_name(tuner, batch)
        after = tuner.measure(good[:2])
    assert found["crash"].status is Status.RUN_ERROR
    assert "SIGSEGV" in found["crash"].error
    assert found["hang"].status is Status.RUN_TIMEOUT
    assert "2 times" in found["hang"].error
    assert all(found[f"good {i}"].status is Status.OK for i in range(len(good)))
    assert [m.status for m in after] == [Status.OK, Status.OK]
    assert ours.count() == 2


def test_a_crash_that_takes_a_stock_server_along_comes_last_and_is_no_label(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    good = programs.good()[:3]
    with fleet(tmp_path_factory.mktemp("stock"), STOCK, STOCK) as stock:
        config = stock.config(patience=2.0)
        with measurer(config, verify="none") as tuner:
            batch = {"crash": programs.segfaults()}
            batch |= {f"good {i}": candidate for i, candidate in enumerate(good)}
            found, order = by_name(tuner, batch)
    assert order[-1] == "crash"
    assert found["crash"].status is Status.INFRA_ERROR
    assert "no server is left" in found["crash"].error
    assert all(found[f"good {i}"].status is Status.OK for i in range(len(good)))


def test_a_frozen_server_costs_a_connect_limit(tmp_path_factory: pytest.TempPathFactory) -> None:
    with fleet(tmp_path_factory.mktemp("ours"), OURS, OURS) as frozen:
        os.killpg(frozen.servers[0].pid, signal.SIGSTOP)
        with measurer(frozen.config(connect_timeout=1.5), verify="none") as tuner:
            found = tuner.measure(programs.good())
    assert [m.status for m in found] == [Status.OK] * len(found)
    assert len({m.host for m in found}) == 1


def test_outputs_are_verified_on_the_device(ours: Fleet) -> None:
    with measurer(ours.config(), verify="all") as tuner:
        right, wrong = tuner.measure([programs.good()[0], programs.wrong()])
    assert right.status is Status.OK and right.verification["passed"]
    assert wrong.status is Status.WRONG_OUTPUT
    assert wrong.verification["passed"] is False


def test_a_measurement_names_its_device(ours: Fleet) -> None:
    with measurer(ours.config(max_servers=1)) as tuner:
        (measured,) = tuner.measure(programs.good()[:1])
    assert measured.host == measured.timing["device"]
    assert measured.host.startswith("127.0.0.1:")
    assert measured.timing["threads"] == len(os.sched_getaffinity(0))
    assert measured.build_secs > 0


@pytest.mark.parametrize("threads", [1, 3])
def test_the_device_runs_the_targets_threads(ours: Fleet, threads: int) -> None:
    from tensorese.measure.rpc_worker import RpcWorker, rpc

    target = parse_target("host", cores=threads)
    settings = {
        "fleet": {"host": "127.0.0.1", "port": ours.port, "key": ours.config().key, "priority": 1},
        "kind": "llvm",
        "scratch": str(ours.folder),
        "target": target,
        "device_threads": threads,
    }
    worker = RpcWorker(settings, notify=lambda message: None)
    host, port, key = worker._match([])
    session = rpc.connect(host, port, key, 20.0)
    worker._set_threads(session)
    assert int(session.get_function("runtime.NumThreads")()) == threads


def test_a_key_without_servers_is_named(ours: Fleet) -> None:
    config = ours.config(key="nobody", patience=1.0)
    with measurer(config) as tuner, pytest.raises(MeasureError, match=r"key 'nobody'.*rpc_server"):
        tuner.measure(programs.good()[:1])


def test_a_missing_tracker_is_named() -> None:
    config = FleetConfig(host="127.0.0.1", port=free_port(), key="k", patience=1.0)
    with measurer(config) as tuner, pytest.raises(MeasureError, match=r"tracker must answer at"):
        tuner.measure(programs.good()[:1])
