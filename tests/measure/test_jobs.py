"""What a worker is sent for a program alone: a trace complete for the worker's own platform."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mean_support import H200, mean_module
from tensorese.identity import structure_of, workload_of
from tensorese.language.constants import complete, is_canonical
from tensorese.measure.base import Candidate, Ticket
from tensorese.measure.build_worker import load_module, load_scheduled
from tensorese.measure.candidates import from_schedule
from tensorese.measure.config import FarmConfig
from tensorese.measure.demo import conv2d_module
from tensorese.measure.farm import Farm
from tensorese.measure.jobs import Job, trace_of
from tensorese.records.nouns import Program, Status
from tensorese.space.sampling import random_schedules
from tensorese.space.space import task_space
from tensorese.targets import Target

pytestmark = pytest.mark.tvm

SMALL = Target.from_json('{"kind":"llvm","num-cores":2}')
LARGE = Target.from_json('{"kind":"llvm","num-cores":16}')


def _job(program: Program) -> Job:
    return Job(0, 0, Candidate(program=program), Ticket(1), {})


def _schedules() -> tuple[Any, Any]:
    """One row of the small platform's space, scheduled for both platforms."""
    module = conv2d_module()
    small, large = task_space(module, SMALL), task_space(module, LARGE)
    row = small.sketches[0].sample(1, np.random.default_rng(0))[0]
    ids = [space.sketch.id for space in large.sketches]
    there = ids.index(small.sketches[0].sketch.id)
    return small.replay(0, row).schedule, large.replay(there, row).schedule


def test_a_stored_program_replays_with_the_numbers_of_the_platform_it_comes_to() -> None:
    here, there = _schedules()
    workload = workload_of(conv2d_module())
    program = from_schedule(here, workload).program
    assert program.id == from_schedule(there, workload).program.id
    assert is_canonical(program.sketch.body)

    for target, wanted in ((SMALL, here), (LARGE, there)):
        job = _job(program)
        module, tail = load_scheduled(job.build_message(target))
        assert structure_of(module) == structure_of(wanted.mod)
        # The record keeps the tail of this platform; runner and export replay trace and tail.
        job.build = {"tail": tail}
        assert job.program.id == program.id
        assert job.program.tail == from_schedule(wanted, workload).program.tail
        assert not job.source(target)["postprocess"]
        assert structure_of(load_module(job.source(target))) == structure_of(wanted.mod)


def test_a_record_of_before_with_its_numbers_inside_replays_as_it_was_stored() -> None:
    here, _ = _schedules()
    program = from_schedule(here, workload_of(conv2d_module())).program
    old = replace(program.sketch, body=complete(program.sketch.body, SMALL.to_json()))
    job = _job(replace(program, sketch=old))
    message = job.build_message(LARGE)
    assert not message["postprocess"]
    module, tail = load_scheduled(message)
    assert tail == ""
    assert structure_of(module) == structure_of(here.mod)


def test_the_trace_holds_the_targets_numbers() -> None:
    here, _ = _schedules()
    program = from_schedule(here, workload_of(conv2d_module())).program
    for target, parallel in ((SMALL, 32), (LARGE, 256)):
        instructions, _ = json.loads(trace_of(program, target))
        found = [i[1] for i in instructions if i[2][:1] == ["meta_schedule.parallel"]]
        assert found[0][1] == parallel


def test_the_farm_measures_a_program_alone_and_records_its_own_tail() -> None:
    target = Target.parse("host")
    module = conv2d_module()
    (schedule,) = random_schedules(module, target, 1)
    whole = from_schedule(schedule, workload_of(module)).program
    elsewhere = replace(whole, tail="[[],[]]")
    config = FarmConfig(verify="all", build_workers=1)
    with Farm(target, config, platform=target.platform()) as farm:
        (result,) = farm.measure([Candidate(program=elsewhere)])
    assert result.status is Status.OK, result.error
    assert result.verification["passed"]
    assert result.program.id == whole.id
    assert result.program.tail == whole.tail


def test_a_program_without_numbers_of_the_platform_is_postprocessed_too() -> None:
    """A reduction across threads has none; unbuilt unrolling made it another program."""
    module = mean_module()
    space = task_space(module, H200)
    (sketch,) = (i for i, one in enumerate(space.sketches) if one.reduces_across_threads)
    program = space.program(sketch, (3, 2), workload_of(module))
    assert not is_canonical(program.sketch.body)
    loaded, tail = load_scheduled(_job(program).build_message(H200))
    assert "pragma_auto_unroll_max_step" in loaded.script()
    assert "EnterPostproc" in tail
    assert structure_of(loaded) == structure_of(space.replay(sketch, (3, 2)).schedule.mod)
