"""The rounds themselves, over stored measurements: order, budget, ends, interruptions."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from rounds_support import CONFIG, PLATFORM, Slowly, open_run, records, run_rounds, tasks_of
from tensorese.iterate.config import IterateConfig, IterateError
from tensorese.iterate.folder import STORE, IterationFolder
from tensorese.iterate.rounds import Rounds
from tensorese.measure.base import Cancelled, Candidate, Ticket
from tensorese.records.nouns import Measurement, Status
from tensorese.records.store import Store

pytestmark = pytest.mark.null

DRIVER = Path(__file__).with_name("driver_replayed_rounds.py")


@pytest.fixture(scope="module")
def known() -> list[Measurement]:
    return records()


@pytest.fixture(scope="module")
def whole(known: list[Measurement], tmp_path_factory: pytest.TempPathFactory) -> Rounds:
    return run_rounds(tmp_path_factory.mktemp("whole") / "run", known)


def written(out: Path) -> list[Any]:
    """The batches without the moments they were written at."""
    batches = [json.loads(path.read_text()) for path in sorted((out / "batches").iterdir())]
    return [{**batch, "span": None} for batch in batches]


def curve(out: Path) -> list[dict[str, Any]]:
    """The rounds without what time they took."""
    timed = ("secs", "measured", "written")
    lines = IterationFolder.read(out).rounds
    return [{k: v for k, v in line.items() if k not in timed} for line in lines]


def measured(out: Path) -> Counter[str]:
    with Store.open(out / STORE) as store:
        return Counter(store.table(["program_id"])["program_id"].to_pylist())


def changed(**settings: Any) -> IterateConfig:
    return dataclasses.replace(CONFIG, **settings)


def test_a_model_of_batch_i_writes_batch_i_plus_2(whole: Rounds) -> None:
    batches = whole.folder.batches(6)
    assert [batch.learnt for batch in batches] == [0, 0, 1, 2, 3, 4]
    models = [batch.model for batch in batches]
    assert models[:2] == ["base", "base"] and len(set(models[1:])) == 5
    assert whole.stopped == "6 rounds are over"
    final = (whole.folder.path / "model" / "config.json").read_text()
    assert final not in models, "the last model has learnt from all rounds"


def test_every_round_takes_what_it_may_and_every_program_is_new(whole: Rounds) -> None:
    assert [len(batch) for batch in whole.folder.batches(6)] == [15] * 6
    counts = measured(whole.folder.path)
    assert sum(counts.values()) == len(counts) == 90
    assert [line["trials"] for line in whole.folder.rounds] == [15, 30, 45, 60, 75, 90]


def test_tasks_that_were_never_measured_come_first(whole: Rounds) -> None:
    first, second, *_ = whole.folder.batches(2)
    tasks = [{task for task, _ in batch.rows} for batch in (first, second)]
    assert len(tasks[0]) == len(tasks[1]) == 3 and not tasks[0] & tasks[1]


def test_the_curve_is_the_weighted_sum_of_best_latencies(
    whole: Rounds, known: list[Measurement]
) -> None:
    best: dict[str, float] = {}
    latency = {m.program.id: m.latency for m in known}
    for batch, line in zip(whole.folder.batches(6), whole.folder.rounds, strict=True):
        for program, _ in batch.programs(whole.workloads):
            name = program.workload.id
            best[name] = min(best.get(name, math.inf), latency[program.id])
        assert line["best"] == best
        assert line["sum"] == pytest.approx(sum(whole.weights[t] * s for t, s in best.items()))
    gains = [line["gain"] for line in whole.folder.rounds]
    assert gains[:2] == [None, None] and all(gain >= 0 for gain in gains[2:])


def test_the_budget_is_counted_exactly(known: list[Measurement], tmp_path: Path) -> None:
    rounds = run_rounds(tmp_path / "run", known, changed(trials=37))
    assert rounds.stopped == "all trials used"
    assert sum(measured(tmp_path / "run").values()) == 37


def test_it_ends_with_a_round_that_gains_little(known: list[Measurement], tmp_path: Path) -> None:
    rounds = run_rounds(tmp_path / "run", known, changed(least_gain=0.99))
    assert len(rounds.folder.rounds) == 3, "two rounds saw their tasks for the first time"
    assert rounds.stopped.startswith("round 3 gained")
    # A smaller least gain is a limit like any other: the run goes on.
    again = run_rounds(tmp_path / "run", known, changed(least_gain=0.0, rounds=5))
    assert len(again.folder.rounds) == 5


def test_more_rounds_go_on_where_fewer_ended(
    known: list[Measurement], whole: Rounds, tmp_path: Path
) -> None:
    run_rounds(tmp_path / "run", known, changed(rounds=2))
    again = run_rounds(tmp_path / "run", known, changed(rounds=2))
    assert again.learner.orders == [] and len(again.folder.rounds) == 2
    run_rounds(tmp_path / "run", known)
    assert curve(tmp_path / "run") == curve(whole.folder.path)
    assert written(tmp_path / "run") == written(whole.folder.path)


def test_it_ends_when_every_program_was_measured(tmp_path: Path) -> None:
    few = records(tasks=2, per_task=8)
    config = changed(task_share=1.0, rounds=9)
    rounds = run_rounds(tmp_path / "run", few, config)
    assert rounds.stopped == "nothing left to try"
    assert sum(measured(tmp_path / "run").values()) == len(few)


def test_tasks_without_a_space_are_passed_over(tmp_path: Path) -> None:
    """Both tasks of the first batch, which is empty then."""
    known = records(tasks=4)
    heaviest = sorted(tasks_of(known), key=lambda t: -t.networks[0][1] * t.flops)
    barred = {task.workload.id for task in heaviest[:2]}
    rounds = run_rounds(tmp_path / "run", known, changed(rounds=4), barred=barred)
    assert [len(batch) for batch in rounds.folder.batches(4)] == [0, 10, 10, 10]
    assert rounds.folder.rounds[0]["gain"] is None
    assert {task for batch in rounds.folder.batches(4) for task in batch.over} == barred


def test_time_ends_it_in_the_middle_of_a_round(known: list[Measurement], tmp_path: Path) -> None:
    rounds = run_rounds(tmp_path / "run", known, changed(minutes=0.4 / 60), secs=0.2)
    assert rounds.stopped == "time is up" and rounds.folder.head["state"] == "finished"
    assert 0 < sum(measured(tmp_path / "run").values()) < 90


def test_where_nothing_ran_the_base_stays_and_no_latency_is_made_up(tmp_path: Path) -> None:
    failing = [
        dataclasses.replace(m, status=Status.BUILD_ERROR, run_secs=()) for m in records(tasks=2)
    ]
    rounds = run_rounds(tmp_path / "run", failing, changed(rounds=3))
    assert [line["best"] for line in rounds.folder.rounds] == [{}, {}, {}]
    assert rounds.folder.rounds[-1]["statuses"] == {"build_error": 5}


class InterruptedAfter(Slowly):
    """Ctrl-C while a program is measured: what is begun ends, nothing more begins."""

    def __init__(self, known: Sequence[Measurement], count: int) -> None:
        super().__init__(known, PLATFORM)
        self.left = count
        self.stop: Callable[[], None] = lambda: None

    def submit(self, candidates: Sequence[Candidate]) -> Ticket:
        ticket = super().submit(candidates[: self.left])
        self.left -= ticket.n
        if not self.left:
            self.stop()
            ticket.n = len(candidates)
            ticket.put(Cancelled("cancelled before it was measured"))
        return ticket


def test_interrupted_it_keeps_what_was_measured_and_goes_on(
    known: list[Measurement], whole: Rounds, tmp_path: Path
) -> None:
    rounds = run_rounds(tmp_path / "run", known, measurer=InterruptedAfter(known, 23))
    assert rounds.folder.head["state"] == rounds.stopped == "interrupted"
    assert sum(measured(tmp_path / "run").values()) == 23
    assert len(IterationFolder.read(tmp_path / "run").rounds) == 1
    run_rounds(tmp_path / "run", known)
    assert set(measured(tmp_path / "run").values()) == {1}
    assert curve(tmp_path / "run") == curve(whole.folder.path)
    assert written(tmp_path / "run") == written(whole.folder.path)


@pytest.mark.parametrize(
    ("config", "head", "said"),
    [
        ({"per_task": 6}, {}, "per_task 5, but now it is 6"),
        ({"task_share": 0.25}, {}, "task_share 0.5, but now it is 0.25"),
        ({"seed": 1}, {}, "seed 0, but now it is 1"),
        ({}, {"model": "5e6f"}, "model base, but now it is 5e6f"),
        ({}, {"target": '{"kind":"cuda"}'}, 'target {}, but now it is {"kind":"cuda"}'),
        ({}, {"platform": "other"}, "platform box-1c, but now it is other"),
        ({}, {"learning": {"steps": "9"}}, "steps absent, but now it is 9"),
        ({}, {"data": [["d", 3]]}, r"data \[\], but now it is \[\['d', 3\]\]"),
    ],
)
def test_another_run_is_not_gone_on_with(
    config: dict[str, Any], head: dict[str, Any], said: str, whole: Rounds, known: list[Measurement]
) -> None:
    with pytest.raises(IterateError, match=said):
        open_run(whole.folder.path, tasks_of(known), changed(**config), **head)


def test_other_tasks_are_refused(whole: Rounds, known: list[Measurement]) -> None:
    with pytest.raises(IterateError, match=r"tasks 6 \(.*\), but now it is 5 \("):
        open_run(whole.folder.path, tasks_of(known)[:5], CONFIG)


def test_killed_at_random_moments_it_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    """kill -9 of a real process: in batches, between rounds, while a model is learnt."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}

    def start(out: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, str(DRIVER), str(tmp_path / out)], env=environment)

    whole, parts, seeded = start("whole"), tmp_path / "parts", random.Random(5)
    for kill in range(6):
        process = start("parts")
        _wait_for_more_than(parts, kill)
        time.sleep(0.15 * seeded.random())
        process.kill()
        assert process.wait() == -9, "the driver must be slow enough to be killed"
    assert start("parts").wait() == 0 and whole.wait() == 0
    assert set(measured(parts).values()) == {1}
    assert measured(parts) == measured(tmp_path / "whole")
    assert written(parts) == written(tmp_path / "whole")
    assert curve(parts) == curve(tmp_path / "whole")
    finals = [(tmp_path / run / "model" / "config.json").read_text() for run in ("whole", "parts")]
    assert finals[0] == finals[1]


def _wait_for_more_than(out: Path, batches: int) -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        if (out / "batches").is_dir() and len(list((out / "batches").glob("0*"))) > batches:
            return
        time.sleep(0.005)
    raise AssertionError("the driver does not get on")
