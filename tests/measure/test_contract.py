"""One contract over every measurer: the local farm, the RPC fleet, replay."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from measurer_contract import Case, MeasurerContract
from tensorese.measure.base import Candidate
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


def real_candidates() -> tuple[list[Candidate], dict[Status, Candidate]]:
    import farm_support as programs

    good = programs.good(32)[:3]
    broken = dataclasses.replace(good[0].program, decisions=(12345,), tail="no trace")
    invalid = Candidate(program=broken, module='{"no": "module"}', origin="mutation")
    bad = {Status.BUILD_ERROR: programs.does_not_build(), Status.INVALID: invalid}
    return good, bad


@pytest.mark.tvm
class TestFarm(MeasurerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def case(cls) -> Case:
        import farm_support as programs
        from tensorese.measure.farm import Farm
        from tensorese.targets import platform_of

        target = programs.host_target()
        good, bad = real_candidates()
        return Case(
            make=lambda store: Farm(target, FarmConfig(calm_secs=0.0), store=store),
            platform=platform_of(target),
            good=good,
            bad=bad,
        )


@pytest.mark.tvm
class TestRpcMeasurer(MeasurerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def case(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
        import farm_support as programs
        import rpc_support
        from tensorese.measure.rpc import RpcMeasurer
        from tensorese.targets import platform_of

        target = programs.host_target()
        good, bad = real_candidates()
        folder: Path = tmp_path_factory.mktemp("fleet")
        ours = rpc_support.OURS
        with rpc_support.fleet(folder, ours, ours) as fleet:
            yield Case(
                make=lambda store: RpcMeasurer(target, fleet.config(ours), store=store),
                platform=platform_of(target),
                good=good,
                bad=bad,
            )


@pytest.mark.null
class TestReplayMeasurer(MeasurerContract):
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
            make=lambda store: ReplayMeasurer(records, platform, store=store),
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
