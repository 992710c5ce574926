"""The `lower` role of build workers: real programs, and some that TVM does not take."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from farm_support import good, host_target, tvm
from tensorese.features.lowered import COLUMNS, LowerStatus, coarse_row
from tensorese.measure import lowering
from tensorese.measure.base import Candidate
from tensorese.measure.candidates import from_module
from tensorese.measure.config import FarmConfig
from tensorese.measure.farm import Farm
from tensorese.measure.jobs import trace_of
from tensorese.measure.lowering import RowSource, from_death, lower_programs, lowering_farm
from tensorese.records.nouns import Measurement, Program, Status
from tensorese.records.store import Store
from tensorese.space.replay import tune_context
from tensorese.targets import Target

pytestmark = pytest.mark.tvm

DATA = Path(__file__).resolve().parents[2] / "data"


def measured(name: str, platform: str, n: int) -> list[Measurement]:
    """Valid programs, at most two a task."""
    seen: dict[str, list[Measurement]] = {}
    with Store.open(DATA / name) as store:
        for m in store.measurements(platform=platform):
            mine = seen.setdefault(m.program.workload.id, [])
            if m.status is Status.OK and len(mine) < 2:
                mine.append(m)
    return list(itertools.chain(*(seen[task] for task in sorted(seen))))[:n]


def in_process(m: Measurement) -> Any:
    """As stock MetaSchedule does it: postprocessed by its own list, asked of its own extractor."""
    target = Target.from_json(m.platform.target)
    module = tvm.ir.load_json(m.program.workload.module)
    context = tune_context(module, target)
    schedule = tvm.s_tir.Schedule(module)
    trace = json.loads(trace_of(m.program, target))
    tvm.s_tir.schedule.Trace.apply_json_to_schedule(trace, schedule)
    schedule.enter_postproc()
    for one in context.space_generator.postprocs:
        assert one.apply(schedule)
    ms = tvm.s_tir.meta_schedule
    candidate = ms.MeasureCandidate(schedule, [])
    extractor = ms.feature_extractor.PerStoreFeature()
    return extractor.extract_from(context, [candidate])[0].numpy().astype(np.float32)


@pytest.mark.parametrize(("name", "platform"), [("cpu", "znver4-2c"), ("h200", "h200")])
def test_rows_are_those_of_stock_metaschedule(name: str, platform: str, tmp_path: Path) -> None:
    sample = measured(name, platform, 6)
    target = Target.from_json(sample[0].platform.target)
    cache = lower_programs(tmp_path, [m.program for m in sample], target)
    for m in sample:
        np.testing.assert_array_equal(cache[m.program.id].rows, in_process(m))
        assert cache[m.program.id].rows.shape[1] == COLUMNS


def constant() -> Program:
    filled = tvm.te.compute((64,), lambda i: tvm.tirx.const(1.0, "float32"), name="ones")
    return from_module(tvm.IRModule({"main": tvm.te.create_prim_func([filled])})).program


def refused() -> Program:
    """A trace that names a block which its workload does not have."""
    program = good()[0].program
    sketch = replace(program.sketch, body=program.sketch.body.replace('"c"', '"nobody"'))
    return replace(program, sketch=sketch)


def test_what_does_not_lower_is_a_status(tmp_path: Path) -> None:
    fine, without = good()[1].program, good()[2].program
    without = replace(without, workload=replace(without.workload, module=""))
    programs = [constant(), refused(), fine, without]
    cache = lower_programs(tmp_path, programs, host_target())
    assert cache.statuses(program.id for program in programs[:3]) == [
        LowerStatus.NO_ROWS,
        LowerStatus.INVALID,
        LowerStatus.OK,
    ]
    assert "nobody" in cache[programs[1].id].error
    assert cache[without.id].status is LowerStatus.INVALID
    again = lower_programs(tmp_path, programs, host_target())
    assert again.statuses(p.id for p in programs) == cache.statuses(p.id for p in programs)


def test_a_second_run_asks_no_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = [candidate.program for candidate in good()]
    told: list[tuple[int, int]] = []
    lower_programs(tmp_path, programs, host_target(), progress=lambda *n: told.append(n))
    assert told == [(k, 6) for k in range(7)]

    def refuse(*_: Any) -> Farm:
        raise AssertionError("everything is known")

    monkeypatch.setattr(lowering, "lowering_farm", refuse)
    assert len(lower_programs(tmp_path, programs, host_target())) == 6


def test_an_interrupt_loses_nothing_that_was_done(tmp_path: Path) -> None:
    programs = [candidate.program for candidate in good()]

    def interrupt(done: int, _: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lower_programs(tmp_path, programs, host_target(), progress=interrupt)
    told: list[int] = []
    lower_programs(tmp_path, programs, host_target(), progress=lambda n, _: told.append(n))
    assert told[0] == 3
    assert told[-1] == 6


def test_a_crashing_worker_costs_one_program() -> None:
    programs = [candidate.program for candidate in good()] * 4
    with lowering_farm(host_target(), workers=1) as farm:
        ticket = farm.lower(programs)
        pid = _stopped_at_work(farm)
        os.kill(pid, signal.SIGABRT)
        os.kill(pid, signal.SIGCONT)
        results = dict(ticket)
    failed = [one for one in results.values() if one.status is not LowerStatus.OK]
    assert len(results) == len(programs)
    assert [one.status for one in failed] == [LowerStatus.LOWER_ERROR]
    assert "SIGABRT" in failed[0].error


def test_a_worker_killed_from_outside_costs_nothing() -> None:
    programs = [candidate.program for candidate in good()] * 4
    with lowering_farm(host_target(), workers=1) as farm:
        ticket = farm.lower(programs)
        os.kill(_stopped_at_work(farm), signal.SIGKILL)
        assert {one.status for _, one in ticket} == {LowerStatus.OK}


def _stopped_at_work(farm: Farm) -> int:
    """A worker that was stopped with a program in hand."""
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        for worker in list(farm._director.workers.values()):
            if worker.job is not None:
                os.kill(worker.pid, signal.SIGSTOP)
                time.sleep(0.2)  # a reply it may have sent is read by then
                if worker.job is not None:
                    return worker.pid
                os.kill(worker.pid, signal.SIGCONT)
        time.sleep(0.001)
    raise AssertionError("no worker was ever at work")


def test_a_farm_lowers_beside_measuring() -> None:
    candidates: list[Candidate] = good(32)
    with Farm(host_target(), FarmConfig(looks=0)) as farm:
        ticket = farm.submit(candidates[:3])
        lowered = dict(farm.lower([candidate.program for candidate in candidates]))
        measurements = [measurement for _, measurement in ticket]
    assert {m.status for m in measurements} == {Status.OK}
    assert [lowered[k].status for k in range(6)] == [LowerStatus.OK] * 6


def test_a_source_of_rows_lowers_each_program_once() -> None:
    measurements = measured("cpu", "znver4-2c", 2)
    program, target = measurements[0].program, Target.from_json(measurements[0].platform.target)
    rows = np.array(
        [m.program.decisions for m in measurements if m.program.sketch == program.sketch]
    )
    farms: list[Farm] = []
    with lowering_farm(target, workers=1) as farm:

        def given() -> Farm:
            farms.append(farm)
            return farm

        source = RowSource(target, given)
        assert len(source(program.workload, program.sketch, rows[:0])) == 0 and not farms
        ragged = source(program.workload, program.sketch, np.concatenate([rows, rows]))
        again = source(program.workload, program.sketch, rows)
    assert len(farms) == 1 and source.asked == len(rows) and source.seconds > 0
    assert len(ragged) == 2 * len(rows) and (ragged.counts > 0).all()
    np.testing.assert_array_equal(again.values, ragged.take(np.arange(len(rows))).values)
    np.testing.assert_array_equal(again.coarse[0], coarse_row(program.workload, target))


def test_what_nobody_waits_for_is_not_begun() -> None:
    programs = [candidate.program for candidate in good()]
    with lowering_farm(host_target(), workers=1) as farm:
        first = iter(farm.lower(programs * 200))
        next(first)
        started = time.monotonic()
        first.close()  # type: ignore[attr-defined]
        assert len(list(farm.lower(programs))) == 6
        assert time.monotonic() - started < 30
        assert not farm._director.to_lower


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (Status.BUILD_TIMEOUT, LowerStatus.TIMEOUT),
        (Status.BUILD_ERROR, LowerStatus.LOWER_ERROR),
    ],
)
def test_a_death_says_what_the_program_did(status: Status, expected: LowerStatus) -> None:
    assert from_death(status, "told").status is expected
