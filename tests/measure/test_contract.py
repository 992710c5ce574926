"""One contract over every measurer of the package; the registry below is checked for gaps."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from measurer_contract import REGISTERED, Case, MeasurerContract, measurers_of_the_package
from nodes_support import Host, Hosts, node_settings
from tensorese.collect.fleet.measurer import FleetMeasurer
from tensorese.collect.session import keep_on
from tensorese.measure.base import Candidate, Journal
from tensorese.measure.config import FarmConfig
from tensorese.records.nouns import (
    Measurement,
    Platform,
    Program,
    Sketch,
    Status,
    TensorSpec,
    Workload,
)
from tensorese.targets import usable_cores


def real_candidates() -> tuple[list[Candidate], dict[Status, Candidate]]:
    import farm_support as programs

    good = programs.good(32)[:3]
    broken = dataclasses.replace(good[0].program, decisions=(12345,), tail="no trace")
    invalid = Candidate(program=broken, module='{"no": "module"}', origin="mutation")
    bad = {Status.BUILD_ERROR: programs.does_not_build(), Status.INVALID: invalid}
    return good, bad


def replayable_candidates() -> tuple[list[Candidate], dict[Status, Candidate]]:
    """The same as a node gets them: no module, the program is replayed where it is built."""
    good, bad = real_candidates()
    sent = [dataclasses.replace(candidate, module="") for candidate in good]
    refused = dataclasses.replace(bad[Status.BUILD_ERROR], module="")
    return sent, {Status.BUILD_ERROR: refused}


@pytest.mark.tvm
class TestFarm(MeasurerContract, of="Farm"):
    @pytest.fixture(scope="class")
    @classmethod
    def case(cls) -> Case:
        import farm_support as programs
        from tensorese.measure.farm import Farm

        target = programs.host_target()
        good, bad = real_candidates()
        return Case(
            make=lambda store: Farm(target, FarmConfig(calm_secs=0.0), journal=store),
            platform=target.platform(),
            good=good,
            bad=bad,
        )


@pytest.mark.tvm
class TestTuningFarm(MeasurerContract, of="TuningFarm"):
    @pytest.fixture(scope="class")
    @classmethod
    def case(cls) -> Case:
        import farm_support as programs
        from tensorese.measure.tuning_farm import TuningFarm

        target = programs.host_target()
        good, bad = real_candidates()
        return Case(
            make=lambda store: TuningFarm(target, journal=store),
            platform=target.platform(),
            good=good,
            bad=bad,
        )


@pytest.mark.slow
@pytest.mark.tvm
class TestCollectFarm(MeasurerContract, of="CollectFarm"):
    @pytest.fixture(scope="class")
    @classmethod
    def case(cls) -> Case:
        import farm_support as programs
        from tensorese.collect.farm import CollectFarm, collecting_on

        target = programs.host_target()
        good, bad = real_candidates()
        platform = target.platform()
        config = collecting_on(target)
        return Case(
            make=lambda store: CollectFarm(target, config, platform=platform, journal=store),
            platform=platform,
            good=good,
            bad=bad,
        )


@pytest.mark.slow
@pytest.mark.tvm
class TestCollectRpc(MeasurerContract, of="CollectRpc"):
    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
        import farm_support as programs
        import rpc_support
        from tensorese.collect.farm import collecting_on
        from tensorese.collect.remote import CollectRpc
        from tensorese.collect.session import Session

        target = programs.host_target()
        good, bad = real_candidates()
        folder: Path = tmp_path_factory.mktemp("devices")
        ours = rpc_support.OURS
        session = Session(
            target=target,
            platform=target.platform(),
            out=folder / "store",
            farm=collecting_on(target),
        )
        with rpc_support.fleet(folder, ours, ours) as fleet:
            yield Case(
                make=lambda store: CollectRpc(session, fleet.config(ours), store),
                platform=session.platform,
                good=good,
                bad=bad,
            )


def fleet_case(*, tunes: bool) -> Case:
    import farm_support as programs

    target = programs.host_target()
    platform = target.platform()
    good, bad = replayable_candidates()

    def make(store: Journal | None) -> FleetMeasurer:
        hosts = Hosts(Host(node_settings(target, tunes=tunes)))
        return FleetMeasurer(hosts, platform, journal=store)

    return Case(make=make, platform=platform, good=good, bad=bad)


@pytest.mark.tvm
class TestFleetMeasurer(MeasurerContract, of="FleetMeasurer"):
    tunes = False

    @pytest.fixture(scope="class")
    @classmethod
    def case(cls) -> Iterator[Case]:
        cores = usable_cores()
        yield fleet_case(tunes=cls.tunes)
        keep_on(cores)


@pytest.mark.slow
class TestTuningFleet(TestFleetMeasurer, of="FleetMeasurer"):
    """The same nodes as `tune --ray` has them."""

    tunes = True


@pytest.mark.null
def test_every_measurer_is_registered() -> None:
    # It lowers programs and runs none: what measuring promises is not asked of it.
    assert measurers_of_the_package() - {"LoweringFarm"} == REGISTERED


@pytest.mark.tvm
class TestRpcMeasurer(MeasurerContract, of="RpcMeasurer"):
    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
        import farm_support as programs
        import rpc_support
        from tensorese.measure.rpc import RpcMeasurer

        target = programs.host_target()
        good, bad = real_candidates()
        folder: Path = tmp_path_factory.mktemp("fleet")
        ours = rpc_support.OURS
        with rpc_support.fleet(folder, ours, ours) as fleet:
            yield Case(
                make=lambda store: RpcMeasurer(target, fleet.config(ours), journal=store),
                platform=target.platform(),
                good=good,
                bad=bad,
            )


@pytest.mark.slow
@pytest.mark.tvm
class TestTuningRpc(MeasurerContract, of="TuningRpc"):
    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
        import farm_support as programs
        import rpc_support
        from tensorese.measure.tuning_rpc import TuningRpc

        target = programs.host_target()
        good, bad = real_candidates()
        ours = rpc_support.OURS
        with rpc_support.fleet(tmp_path_factory.mktemp("tuned"), ours, ours) as fleet:
            yield Case(
                make=lambda store: TuningRpc(target, fleet.config(ours), journal=store),
                platform=target.platform(),
                good=good,
                bad=bad,
            )


@pytest.mark.null
class TestReplayMeasurer(MeasurerContract, of="ReplayMeasurer"):
    @pytest.fixture(scope="class")
    @classmethod
    def case(cls) -> Case:
        from tensorese.measure.replay import ReplayMeasurer

        platform = Platform(name="somewhere-4c", target='{"kind":"llvm"}')
        ends = [Status.OK, Status.OK, Status.OK, Status.BUILD_ERROR, Status.INVALID]
        records = [stored(tile, end, platform) for tile, end in enumerate(ends)]
        candidates = [Candidate(program=r.program, origin="random") for r in records]
        unknown = Candidate(program=stored(99, Status.OK, platform).program, origin="random")
        bad = dict(zip(ends[3:], candidates[3:], strict=True)) | {Status.INFRA_ERROR: unknown}
        return Case(
            make=lambda store: ReplayMeasurer(records, platform, journal=store),
            platform=platform,
            good=candidates[:3],
            bad=bad,
        )


def stored(tile: int, status: Status, platform: Platform) -> Measurement:
    spec = TensorSpec(shape=(32, 32), dtype="float32")
    workload = Workload(operator="matmul", args=(spec, spec, spec))
    sketch = Sketch(dialect="metaschedule", body="[[null],[]]", slots=((0, -1),))
    return Measurement(
        program=Program(workload=workload, sketch=sketch, decisions=(tile,)),
        platform=platform,
        status=status,
        run_secs=(1e-3, 2e-3) if status is Status.OK else (),
        error="" if status is Status.OK else "refused by TVM",
        origin="imported:log.json",
        toolchain={"tvm": "0.27"},
        host="somewhere",
    )
