"""What every `Measurer` must do. A new one joins by subclassing and giving a `case` fixture.

class TestMine(MeasurerContract, of="Mine"):
    @pytest.fixture(scope="class")
    @classmethod
    def case(cls) -> Iterator[Case]: ...

`of` names the class; `test_every_measurer_is_registered` fails while one of the package is not.
"""

from __future__ import annotations

import ast
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tensorese
from tensorese.errors import MeasureError
from tensorese.measure.base import Cancelled, Candidate, Journal, Measurer
from tensorese.records.nouns import Measurement, Platform, Status

REGISTERED: set[str] = set()


def measurers_of_the_package() -> set[str]:
    """Every class below `Measurer` in the source, found without importing TVM."""
    bases: dict[str, set[str]] = {}
    for path in Path(tensorese.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                named = {base.id for base in node.bases if isinstance(base, ast.Name)}
                bases.setdefault(node.name, set()).update(named)
    family = {"Measurer"}
    while more := {name for name, over in bases.items() if over & family} - family:
        family |= more
    return family - {"Measurer"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """How to make the measurer, and candidates whose end is known. At least three are good."""

    make: Callable[[Journal | None], Measurer]
    platform: Platform
    good: list[Candidate]
    bad: dict[Status, Candidate]

    def mixed(self) -> list[Candidate]:
        """Bad ones between good ones."""
        first, *rest = self.good
        return [first, *self.bad.values(), *rest]


class Broken:
    def append(self, measurement: Measurement) -> None:
        raise OSError("the disk is gone")


class MeasurerContract:
    def __init_subclass__(cls, *, of: str, **more: Any) -> None:
        super().__init_subclass__(**more)
        REGISTERED.add(of)

    @pytest.fixture(scope="class")
    @classmethod
    def journal(cls) -> list[Measurement]:
        return []

    @pytest.fixture(scope="class")
    @classmethod
    def measurer(cls, case: Case, journal: list[Measurement]) -> Iterator[Measurer]:
        with case.make(journal) as measurer:
            yield measurer

    @pytest.fixture(scope="class")
    @classmethod
    def measured(cls, case: Case, measurer: Measurer) -> list[Measurement]:
        return measurer.measure(case.mixed())

    def test_measure_keeps_the_order(self, case: Case, measured: list[Measurement]) -> None:
        assert [m.program.id for m in measured] == [c.program.id for c in case.mixed()]

    def test_a_bad_candidate_ends_as_what_it_is(
        self, case: Case, measured: list[Measurement]
    ) -> None:
        ends = {m.program.id: (m.status, m.error) for m in measured}
        for status, candidate in case.bad.items():
            assert ends[candidate.program.id][0] is status, ends[candidate.program.id]

    def test_a_bad_candidate_does_not_harm_the_others(
        self, case: Case, measured: list[Measurement]
    ) -> None:
        ends = {m.program.id: (m.status, m.error) for m in measured}
        for candidate in case.good:
            assert ends[candidate.program.id] == (Status.OK, "")

    def test_only_ok_has_a_latency(self, measured: list[Measurement]) -> None:
        for m in measured:
            if m.status is Status.OK:
                assert m.run_secs and min(m.run_secs) > 0
                assert m.latency > 0
            else:
                assert m.error.strip()
                assert math.isnan(m.latency)

    def test_every_measurement_says_where_it_comes_from(
        self, case: Case, measured: list[Measurement]
    ) -> None:
        for m, candidate in zip(measured, case.mixed(), strict=True):
            assert m.platform == case.platform
            assert m.origin == candidate.origin != ""
            assert m.toolchain and m.host
            assert m.time > 1.7e9
        assert len({m.id for m in measured}) == len(measured)

    def test_results_are_journalled_before_they_are_handed_out(
        self, case: Case, measurer: Measurer, journal: list[Measurement]
    ) -> None:
        for _, measurement in measurer.submit(case.good):
            assert measurement in journal

    def test_submit_yields_every_candidate_once(self, case: Case, measurer: Measurer) -> None:
        batch = case.mixed()
        ticket = measurer.submit(batch)
        assert ticket.n == ticket.remaining == len(batch)
        found = dict(ticket.poll())
        found |= dict(ticket)
        assert ticket.remaining == 0
        assert sorted(found) == list(range(len(batch)))
        assert all(found[i].program.id == batch[i].program.id for i in found)

    def test_two_batches_may_be_under_way(self, case: Case, measurer: Measurer) -> None:
        first, second = measurer.submit(case.good[:1]), measurer.submit(case.good[1:])
        assert len(dict(second)) == len(case.good) - 1
        assert len(dict(first)) == 1

    def test_a_candidate_given_twice_is_measured_twice(
        self, case: Case, measurer: Measurer
    ) -> None:
        twice = measurer.measure([case.good[0]] * 2)
        assert [m.status for m in twice] == [Status.OK] * 2
        assert twice[0].id != twice[1].id

    def test_an_empty_batch_is_done_at_once(self, measurer: Measurer) -> None:
        assert measurer.measure([]) == []
        assert list(measurer.submit([])) == []

    def test_it_measures_on_after_its_owner_has_thought(
        self, case: Case, measurer: Measurer
    ) -> None:
        with measurer.thinking():
            ticket = measurer.submit(case.good[:2])
        ran = [(m.status, m.error) for _, m in ticket]
        assert {status for status, _ in ran} <= {Status.OK, Status.CENSORED}, ran

    def test_a_broken_journal_is_an_error_and_no_hang(self, case: Case) -> None:
        with case.make(Broken()) as measurer, pytest.raises(OSError, match="the disk is gone"):
            measurer.measure(case.good[:1])

    def test_closing_is_final_and_may_be_repeated(self, case: Case) -> None:
        measurer = case.make(None)
        pending = measurer.submit(case.good)
        measurer.close()
        measurer.close()
        with pytest.raises(MeasureError, match="closed"):
            measurer.submit(case.good)
        try:
            assert len(dict(pending)) == len(case.good)
        except MeasureError as error:  # what was not measured must not be waited for
            assert "closed" in str(error)

    def test_the_journal_may_be_set_later(self, case: Case) -> None:
        later: list[Measurement] = []
        with case.make(None) as measurer:
            assert measurer.journal is None
            measurer.journal = later
            assert measurer.measure(case.good[:1]) == later

    def test_bests_from_elsewhere_are_no_measurements(self, case: Case) -> None:
        with case.make(None) as measurer:
            measurer.know_best({case.good[0].program.workload.id: 1e-12})
            (measured,) = measurer.measure(case.good[:1])
        assert measured.status in (Status.OK, Status.CENSORED)
        assert min(measured.run_secs) > 1e-9

    def test_cancelled_it_begins_nothing_and_journals_what_it_was_at(self, case: Case) -> None:
        journal: list[Measurement] = []
        with case.make(journal) as measurer:
            measurer.measure(case.good[:1])  # up and running
            ticket = measurer.submit(case.good * 20)
            measurer.cancel()
            measurer.settle()
            measured = len(journal)
            with pytest.raises(Cancelled, match="cancelled"):
                list(measurer.submit(case.good))
            finished = []
            try:
                finished.extend(ticket)
            except Cancelled:
                assert measured - 1 < ticket.n
            time.sleep(0.2)
            assert len(journal) == measured, "nothing is measured after it has settled"
            assert all(m in journal for _, m in finished)
