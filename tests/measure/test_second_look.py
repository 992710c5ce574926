"""Which candidates are timed again, without a compiler."""

from __future__ import annotations

import pytest

from tensorese.measure.base import Candidate, Ticket
from tensorese.measure.config import FarmConfig
from tensorese.measure.jobs import Job
from tensorese.measure.second_look import SecondLook
from tensorese.measure.timing import TimingConfig
from tensorese.records.nouns import Program, Sketch, Workload

pytestmark = pytest.mark.null


def batch(latencies: list[float]) -> list[Job]:
    """Jobs of one batch, already timed once, in submitting order."""
    ticket = Ticket(len(latencies))
    program = Program(
        workload=Workload(operator="x", args=(), module="{}"),
        sketch=Sketch(dialect="metaschedule", body="[]", slots=()),
        decisions=(),
    )
    bests = {program.workload.id: min(latencies)}
    return [
        Job(i, i, Candidate(program=program), ticket, bests, run={"secs": [secs]})
        for i, secs in enumerate(latencies)
    ]


def through(look: SecondLook, jobs: list[Job]) -> tuple[list[int], list[int]]:
    for job in jobs:
        look.expect(job)
    again: list[Job] = []
    lost: list[Job] = []
    for job in jobs:
        assert not again, "nobody may run again before the whole batch was timed"
        if look.wants(job, job.run):
            look.hold(job)
        look.timed(job)
        more = look.due(job.ticket)
        again += more[0]
        lost += more[1]
    return [job.id for job in again], [job.id for job in lost]


def test_close_candidates_are_timed_again_best_first() -> None:
    look = SecondLook(FarmConfig(look_ratio=1.15), "llvm")
    assert through(look, batch([1.1, 2.0, 1.0])) == ([2, 0], [])


def test_no_more_than_a_sixth_of_a_batch() -> None:
    look = SecondLook(FarmConfig(look_ratio=1.15, look_least=2), "llvm")
    again, lost = through(look, batch([1.0 + i / 1000 for i in range(24)]))
    assert again == [0, 1, 2, 3] and len(lost) == 20


def test_of_a_small_batch_ten() -> None:
    look = SecondLook(FarmConfig(look_ratio=1.15), "llvm")
    again, lost = through(look, batch([1.0 + i / 1000 for i in range(24)]))
    assert again == list(range(10)) and len(lost) == 14


def test_never_with_tvms_fixed_rule_on_a_gpu_or_alone() -> None:
    fixed = FarmConfig(timing=TimingConfig(number=3))
    assert through(SecondLook(fixed, "llvm"), batch([1.0, 1.0])) == ([], [])
    assert through(SecondLook(FarmConfig(), "cuda"), batch([1.0, 1.0])) == ([], [])
    assert through(SecondLook(FarmConfig(), "llvm"), batch([1.0])) == ([], [])


def test_held_candidates_are_given_back_when_their_programs_are_gone() -> None:
    look = SecondLook(FarmConfig(), "llvm")
    jobs = batch([1.0, 1.0])
    for job in jobs:
        look.expect(job)
    look.hold(jobs[0])
    look.timed(jobs[0])
    assert look.due(jobs[0].ticket) == ([], [])
    assert look.forget() == [jobs[0]]
    assert look.forget() == []


def test_the_best_after_all_looks_is_verified_before_anything_is_recorded() -> None:
    look = SecondLook(FarmConfig(looks=1), "llvm")
    first, second = batch([1.0, 1.05])
    first.run["verification"] = {"passed": True}
    through(look, [first, second])
    look.seen(first, {"secs": [3.0]})
    assert look.settled(first.ticket) == ([], [])
    look.seen(second, {"secs": [0.9]})
    assert look.settled(first.ticket) == ([second], []) and second.check
    look.seen(second, {"secs": [0.9], "verification": {"passed": True}})
    assert look.settled(first.ticket) == ([], [second, first])
    assert second.run["secs"] == [0.9, 0.9] and second.run["disturbed"] == [1.05]
    assert first.run["secs"] == [1.0] and first.run["disturbed"] == [3.0]


def test_a_contender_that_fails_later_does_not_keep_the_others_waiting() -> None:
    look = SecondLook(FarmConfig(looks=1, verify="none"), "llvm")
    jobs = batch([1.0, 1.05])
    through(look, jobs)
    look.seen(jobs[1], {"secs": [1.0]})
    look.dropped(jobs[0])
    assert look.settled(jobs[0].ticket) == ([], [jobs[1]])


def test_another_look_may_wait_for_a_while_and_no_longer() -> None:
    look = SecondLook(FarmConfig(calm_secs=0.5), "llvm")
    first, *others = batch([1.0, 1.1, 1.2])
    through(look, [first, *others])
    assert look.may_wait(first)
    look.waited[first.ticket] += 0.5
    assert not look.may_wait(first) and not look.may_wait(others[0])
    fresh = batch([1.0])[0]
    fresh.run = {}
    assert not look.may_wait(fresh), "a first look waits for nobody"
