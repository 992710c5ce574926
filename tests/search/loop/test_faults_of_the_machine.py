"""A tuning run on a machine that fails: no label, no trial, and the same command goes on."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tensorese.measure.base import Candidate, Ticket
from tensorese.measure.faults import MachineFault
from tensorese.records.nouns import Measurement, Status
from tensorese.records.store import Store
from tensorese.search.loop.config import TuneConfig
from tensorese.search.loop.tune_tasks import RunOutcome, tune_tasks
from tuning_support import PLATFORM, TARGET, Guess, Ignorant, MadeUpMeasurer, matmul_task

pytestmark = pytest.mark.tvm


class Failing(MadeUpMeasurer):
    """Meets a fault of the machine where `fails` says so, by how often a program was tried."""

    def __init__(self, *, every: int, turns: int) -> None:
        super().__init__()
        self.every, self.turns = every, turns
        self.tried: Counter[str] = Counter()

    def submit(self, candidates: Sequence[Candidate]) -> Ticket:
        ticket, journal, self.journal = Ticket(len(candidates)), self.journal, None
        results = dict(super().submit(candidates))
        self.journal = journal
        for index, result in sorted(results.items()):
            result = self._faulty(result)
            if journal is not None:
                journal.append(result)
            ticket.put((index, result))
        return ticket

    def _faulty(self, result: Measurement) -> Measurement:
        program = result.program.id
        self.tried[program] += 1
        if int(program[:4], 16) % self.every or self.tried[program] > self.turns:
            return result
        status = Status.INFRA_ERROR
        return dataclasses.replace(result, status=status, run_secs=(), error="full; free some")


def tune(out: Path, measurer: MadeUpMeasurer) -> RunOutcome:
    ranker = Ignorant()
    return tune_tasks(
        [matmul_task(16), matmul_task(8)],
        target=TARGET,
        platform=PLATFORM,
        measurer=measurer,
        ranker=ranker,
        out=out,
        config=TuneConfig(trials=40, batch=8),
        proposer=Guess(ranker),
    )


def labels(out: Path) -> tuple[Counter[str], Counter[str]]:
    """How often each program was tried, and how often it met a fault."""
    with Store.open(out / "store") as store:
        rows = [m for m in store.measurements() if m.origin != "finalist"]
    tried = Counter(m.program.id for m in rows if m.status is not Status.INFRA_ERROR)
    return tried, Counter(m.program.id for m in rows if m.status is Status.INFRA_ERROR)


def test_what_met_a_fault_is_measured_again_and_costs_no_trial(tmp_path: Path) -> None:
    run = tune(tmp_path / "run", Failing(every=3, turns=1))
    tried, faulty = labels(tmp_path / "run")
    assert run.trials == len(tried) == tried.total() == 40
    assert faulty and faulty.keys() <= tried.keys()
    plain = tune(tmp_path / "plain", MadeUpMeasurer())
    assert plain.trials == 40 and labels(tmp_path / "plain")[0] == tried


def test_a_program_that_always_meets_one_is_left_out(tmp_path: Path) -> None:
    run = tune(tmp_path / "run", Failing(every=5, turns=1000))
    tried, faulty = labels(tmp_path / "run")
    assert run.trials == len(tried) == 40 and not faulty.keys() & tried.keys()
    assert set(faulty.values()) == {3}
    lines = [json.loads(x) for x in (run.path / "batches.jsonl").read_text().splitlines()]
    assert {p["program"] for line in lines for p in line["proposed"]} == tried.keys()


def test_a_machine_where_nothing_works_ends_the_run_and_the_same_command_goes_on(
    tmp_path: Path,
) -> None:
    with pytest.raises(MachineFault, match=r"free some.*same command again"):
        tune(tmp_path / "run", Failing(every=1, turns=1000))
    tried, _ = labels(tmp_path / "run")
    assert not tried
    again = tune(tmp_path / "run", MadeUpMeasurer())
    assert again.trials == 40
    plain = tune(tmp_path / "plain", MadeUpMeasurer())
    assert labels(tmp_path / "run")[0] == labels(plain.path)[0]
