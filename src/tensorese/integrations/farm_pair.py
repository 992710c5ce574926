"""The farm as MetaSchedule's builder and runner: warm workers, all cores, nothing re-imported.

    with farm_pair(target) as (builder, runner):
        ms.tune_tir(mod, target, work_dir, 64, builder=builder, runner=runner)

The farm builds and runs in one go, so the builder only writes modules down for the runner.
"""

from __future__ import annotations

import contextlib
import importlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tensorese.integrations.programs import target_of
from tensorese.measure.base import Ticket
from tensorese.measure.candidates import from_module
from tensorese.measure.config import FarmConfig
from tensorese.measure.farm import Farm
from tensorese.records.nouns import Measurement, Status
from tensorese.tvm_env import import_tvm


class _Batch:
    """The measurements of one `submit`, fetched one by one."""

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        self.measurements: dict[int, Measurement] = {}

    def done(self, index: int) -> bool:
        self.measurements.update(self.ticket.poll())
        return index in self.measurements

    def wait(self, index: int) -> Measurement:
        if not self.done(index):
            for at, measurement in self.ticket:
                self.measurements[at] = measurement
                if at == index:
                    break
        return self.measurements[index]


@contextlib.contextmanager
def farm_pair(target: Any, config: FarmConfig | None = None) -> Iterator[tuple[Any, Any]]:
    """`target` is TVM's. Outputs are not verified: MetaSchedule does not name what is computed."""
    settings = config or FarmConfig(verify="none")
    with (
        tempfile.TemporaryDirectory(prefix="tensorese-") as folder,
        Farm(target_of(target), settings) as farm,
    ):
        yield _builder(Path(folder)), _runner(farm)


def _builder(folder: Path) -> Any:
    tvm, derived_object = _tvm()
    ms = tvm.s_tir.meta_schedule
    base: Any = ms.builder.PyBuilder
    written = 0

    @derived_object
    class FarmBuilder(base):  # type: ignore[misc]
        def build(self, build_inputs: Any) -> list[Any]:
            nonlocal written
            results = []
            for build_input in build_inputs:
                # MetaSchedule deletes an artifact with the folder it lies in.
                path = folder / str(written) / "module.json"
                path.parent.mkdir()
                written += 1
                path.write_text(tvm.ir.save_json(build_input.mod))
                results.append(ms.builder.BuilderResult(str(path), None))
            return results

    return FarmBuilder()


def _runner(farm: Farm) -> Any:
    tvm, derived_object = _tvm()
    ms = tvm.s_tir.meta_schedule
    base: Any = ms.runner.PyRunner
    future_base: Any = ms.runner.PyRunnerFuture

    @derived_object
    class FarmFuture(future_base):  # type: ignore[misc]
        def __init__(self, batch: _Batch, index: int) -> None:
            super().__init__()
            self.batch, self.index = batch, index

        def done(self) -> bool:
            return self.batch.done(self.index)

        def result(self) -> Any:
            got = self.batch.wait(self.index)
            if got.status in (Status.OK, Status.CENSORED):
                return ms.runner.RunnerResult(list(got.run_secs), None)
            return ms.runner.RunnerResult(None, got.error or got.status.value)

    @derived_object
    class FarmRunner(base):  # type: ignore[misc]
        def run(self, runner_inputs: Any) -> list[Any]:
            paths = [Path(str(runner_input.artifact_path)) for runner_input in runner_inputs]
            modules = [tvm.ir.load_json(path.read_text()) for path in paths]
            batch = _Batch(farm.submit([from_module(module) for module in modules]))
            return [FarmFuture(batch, index) for index in range(len(modules))]

    return FarmRunner()


def _tvm() -> tuple[Any, Any]:
    utils: Any = importlib.import_module("tvm.ir.utils")
    return import_tvm(), utils.derived_object
