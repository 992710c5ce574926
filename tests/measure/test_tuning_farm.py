"""The farm of a tuning run: it waits while its owner thinks, ends on demand, re-times finalists."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from multiprocessing import Pipe

import pytest

import farm_support as programs
from tensorese.measure.base import FINALIST, Cancelled, Candidate
from tensorese.measure.crew import Worker
from tensorese.measure.jobs import Job
from tensorese.measure.tuning_farm import TuningFarm
from tensorese.measure.wire import Message
from tensorese.records.nouns import Status

pytestmark = pytest.mark.tvm


def finalists(candidates: list[Candidate]) -> list[Candidate]:
    return [replace(candidate, origin=FINALIST) for candidate in candidates]


def test_nothing_is_timed_while_the_owner_thinks() -> None:
    with TuningFarm(programs.host_target()) as farm:
        if not farm.plan.exclusive:
            pytest.skip("this machine has cores to spare: nobody is in the way")
        farm.measure(programs.good())  # up and running
        with farm.thinking():
            ticket = farm.submit(programs.good())
            time.sleep(2.0)
            assert ticket.poll() == []
        assert len(list(ticket)) == len(programs.good())


def test_a_finalist_is_built_once_timed_longer_and_verified_every_time() -> None:
    with TuningFarm(programs.host_target()) as farm:
        chosen = finalists(list(programs.good()))
        first = farm.measure(chosen)
        kept = dict(farm._director.kept)  # type: ignore[attr-defined]
        again = farm.measure(chosen)
    assert len(kept) == len({candidate.program.id for candidate in chosen})
    for one in [*first, *again]:
        assert one.status is Status.OK and one.origin == FINALIST
        assert one.verification["passed"]
        taken = [*one.run_secs, *one.timing["disturbed"]]
        assert len(taken) >= 10 or sum(taken) > 0.05
    assert [a.build_secs for a in first] == [b.build_secs for b in again], "not built again"


def test_cancelled_it_ends_what_it_is_at_and_gives_up_the_rest() -> None:
    with TuningFarm(programs.host_target()) as farm:
        farm.measure(programs.good())
        ticket = farm.submit(list(programs.good()) * 20)
        farm.cancel()
        settled = threading.Thread(target=farm.settle)
        settled.start()
        settled.join(timeout=60)
        assert not settled.is_alive()
        with pytest.raises(Cancelled):
            list(ticket)
        assert ticket.remaining > 0


def test_cancelled_during_a_second_look_the_contender_is_recorded() -> None:
    """Ctrl-C found a run that waited for ever: nobody recorded who was being looked at again."""
    with TuningFarm(programs.host_target()) as farm:
        director = farm._director
        asked = director._run_message

        def cancel_at_another_look(job: Job, best: float) -> Message:
            if job.run:
                farm.cancel()
            return asked(job, best)

        director._run_message = cancel_at_another_look  # type: ignore[method-assign]
        ticket = farm.submit(programs.good())
        waiting = threading.Thread(target=list, args=(ticket,), daemon=True)
        waiting.start()
        waiting.join(timeout=60)
        assert farm.cancelled, "no candidate was looked at again"
        assert not waiting.is_alive() and ticket.remaining == 0


def test_builds_far_beyond_the_usual_are_cut() -> None:
    with TuningFarm(programs.host_target()) as farm:
        farm.measure(programs.good())
        director = farm._director
        job = type("Job", (), {"workload_id": "w", "candidate": programs.good()[0]})()
        assert director._build_limit(job) == farm.config.build_timeout  # type: ignore[attr-defined]
        director.build_secs["w"] = [0.5] * 3  # type: ignore[attr-defined]
        assert director._build_limit(job) == pytest.approx(8.0)  # type: ignore[attr-defined]
        director.build_secs["w"] = [0.5] * 8  # type: ignore[attr-defined]
        assert director._build_limit(job) == pytest.approx(4.0)  # type: ignore[attr-defined]
        director.build_secs["w"] = [0.05] * 8  # type: ignore[attr-defined]
        assert director._build_limit(job) == pytest.approx(2.0)  # type: ignore[attr-defined]


def test_a_build_begun_before_its_like_were_known_is_hurried() -> None:
    worker = Worker(pid=0, role="build", lane=0, connection=Pipe()[0])
    worker.allow(30.0)
    deadline = worker.deadline
    worker.hurry(8.0)
    assert worker.deadline == pytest.approx(deadline - 22.0) and worker.limit == 8.0
    worker.hurry(20.0)
    assert worker.limit == 8.0, "it is never given more"


def test_one_crawling_build_does_not_hold_a_batch_up() -> None:
    with TuningFarm(programs.host_target()) as farm:
        others = programs.good()
        crawler = programs.crawls_in_llvm()
        same = replace(crawler.program, workload=others[0].program.workload)
        crawler = replace(crawler, program=same)
        started = time.monotonic()
        results = farm.measure([crawler, *[others[0]] * 4])
        assert results[0].status == Status.BUILD_TIMEOUT
        assert time.monotonic() - started < 0.6 * farm.config.build_timeout
