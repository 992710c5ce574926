"""Replay: stored measurements as answers, on their own platform, in a fixed order."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tensorese.errors import StoreError
from tensorese.measure.base import Candidate
from tensorese.measure.replay import NOT_STORED, ReplayMeasurer
from tensorese.records.nouns import Measurement, Platform, Status
from tensorese.records.store import Store

pytestmark = pytest.mark.null

Make = Callable[..., Measurement]


def candidate(measurement: Measurement, **more: Any) -> Candidate:
    return Candidate(program=measurement.program, **more)


def test_a_program_is_answered_with_its_record(make_measurement: Make) -> None:
    one = make_measurement(decisions=(1, 2, 3), secs=(1e-3,), origin="imported:log")
    two = make_measurement(decisions=(3, 2, 1), secs=(2e-3,), origin="imported:log")
    found = ReplayMeasurer([one, two], "cpu").measure(
        [candidate(two, origin="model:tlp:abc"), candidate(one)]
    )
    assert [m.latency for m in found] == [2e-3, 1e-3]
    assert [m.origin for m in found] == ["model:tlp:abc", "imported:log"]
    assert [m.timing["replay_of"] for m in found] == [two.id, one.id]
    assert not {m.id for m in found} & {one.id, two.id}
    assert found[0].time == two.time


def test_another_platform_never_answers(make_measurement: Make) -> None:
    here, there = make_measurement(platform="here"), make_measurement(platform="there")
    elsewhere = make_measurement(platform="there", decisions=(1, 1, 1))
    replay = ReplayMeasurer([there, here, elsewhere], Platform(name="here"))
    assert len(replay) == 1
    known, unknown = replay.measure([candidate(here), candidate(elsewhere)])
    assert known.timing["replay_of"] == here.id
    assert unknown.status is Status.INFRA_ERROR


def test_a_program_that_is_not_stored_gets_no_label(make_measurement: Make) -> None:
    unknown = make_measurement(decisions=(9, 9, 9))
    replay = ReplayMeasurer([make_measurement()], "cpu")
    (found,) = replay.measure([candidate(unknown, origin="random")])
    assert found.status is Status.INFRA_ERROR
    assert NOT_STORED in found.error and unknown.program.id in found.error
    assert math.isnan(found.latency)
    assert replay.simulated_secs == 0.0


def test_stored_faults_of_the_machinery_are_no_answer(make_measurement: Make) -> None:
    fault = make_measurement(status=Status.INFRA_ERROR, error="RPC dropped")
    label = make_measurement()
    assert ReplayMeasurer([fault], "cpu").measure([candidate(fault)])[0].error != "RPC dropped"
    (found,) = ReplayMeasurer([fault, label], "cpu").measure([candidate(fault)])
    assert found.timing["replay_of"] == label.id


def test_stored_failures_are_answers(make_measurement: Make) -> None:
    failed = make_measurement(status=Status.BUILD_TIMEOUT, error="cut after 30 s")
    (found,) = ReplayMeasurer([failed], "cpu").measure([candidate(failed)])
    assert (found.status, found.error) == (Status.BUILD_TIMEOUT, "cut after 30 s")


def test_repeated_measurements_come_in_order_then_the_last_again(make_measurement: Make) -> None:
    stored = [make_measurement(secs=(secs,)) for secs in (3e-3, 1e-3, 2e-3)]
    replay = ReplayMeasurer(stored, "cpu")
    asked = [candidate(stored[0])] * 5
    found = replay.measure(asked)
    assert [m.latency for m in found] == [3e-3, 1e-3, 2e-3, 2e-3, 2e-3]
    assert len({m.id for m in found}) == 5


def test_two_runs_of_one_search_are_equal(make_measurement: Make) -> None:
    stored = [make_measurement(decisions=(i, 1, 1), build_secs=0.1) for i in range(4)]
    asked = [candidate(m, origin="random") for m in reversed(stored)] * 2
    runs = []
    for _ in range(2):
        journal: list[Measurement] = []
        arrived = [
            index for index, _ in ReplayMeasurer(stored, "cpu", journal=journal).submit(asked)
        ]
        assert arrived == list(range(len(asked)))
        runs.append(journal)
    assert runs[0] == runs[1]


def test_the_clock_adds_what_building_and_running_took(make_measurement: Make) -> None:
    timed = make_measurement(secs=(1e-3, 2e-3), build_secs=0.5, timing={"number": 10})
    bare = make_measurement(decisions=(1, 1, 1), secs=(4e-3,))
    failed = make_measurement(decisions=(2, 2, 2), status=Status.BUILD_ERROR, build_secs=0.25)
    assert timed.cost_secs == pytest.approx(0.5 + 10 * 3e-3)
    assert bare.cost_secs == pytest.approx(4e-3)
    replay = ReplayMeasurer([timed, bare, failed], "cpu")
    replay.measure([candidate(m) for m in (timed, bare, failed)])
    assert replay.simulated_secs == pytest.approx(0.5 + 0.03 + 0.004 + 0.25)


def test_test_rows_answer_only_on_request(make_measurement: Make) -> None:
    train, test = make_measurement(), make_measurement(decisions=(1, 1, 1), split="test")
    asked = [candidate(train), candidate(test)]

    def ends(**split: Any) -> list[Status]:
        return [m.status for m in ReplayMeasurer([train, test], "cpu", **split).measure(asked)]

    assert ends() == [Status.OK, Status.INFRA_ERROR]
    assert ends(split="test") == [Status.INFRA_ERROR, Status.OK]
    assert ends(split="all") == [Status.OK, Status.OK]


def test_programs_lists_what_can_be_answered(make_measurement: Make) -> None:
    small = [make_measurement(size=32, decisions=(i, 1, 1)) for i in (3, 1, 2)]
    large = make_measurement(size=128)
    replay = ReplayMeasurer([*small, large, small[0]], "cpu")
    listed = replay.programs(small[0].program.workload.id)
    assert [p.decisions[0] for p in listed] == [3, 1, 2]
    assert replay.programs("unknown") == []


def test_a_store_is_a_source_and_a_journal(tmp_path: Path, make_measurement: Make) -> None:
    stored = [make_measurement(decisions=(i, 1, 1), secs=(1e-3 * (i + 1),)) for i in range(3)]
    other = make_measurement(platform="gpu")
    journal = Store.open(tmp_path / "run", create=True)
    with Store.open(tmp_path / "records", create=True) as records:
        records.append_many([*stored, other])
        replay = ReplayMeasurer(records, "cpu", journal=journal)
        found = replay.measure([candidate(m, origin="random") for m in stored])
        with pytest.raises(StoreError, match="no records of platform 'tpu'"):
            ReplayMeasurer(records, "tpu")
    assert [m.latency for m in found] == [m.latency for m in stored]
    with journal:
        written = list(journal.measurements(platform="cpu"))
    assert [m.id for m in written] == [m.id for m in found]
    assert dataclasses.replace(written[0], time=0.0).timing["replay_of"] == stored[0].id
