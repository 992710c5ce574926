"""The loop without hardware: limits, dead ends, finalists, and going on after a kill."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tensorese.errors import MeasureError, TensoreseError
from tensorese.measure.base import Measurer
from tensorese.records.nouns import Status
from tensorese.records.run_entries import EitherWay, Way
from tensorese.records.run_folder import recorded_ways
from tensorese.records.store import Store
from tensorese.records.task import Task
from tensorese.search.loop import tuner
from tensorese.search.loop.config import TuneConfig, TuneError
from tensorese.search.loop.events import BatchDone, Callback, Ended, NewBest
from tensorese.search.loop.first_batch import open_records
from tensorese.search.loop.tune_tasks import RunOutcome, select, tune_tasks
from tensorese.search.proposers.by_name import PROPOSERS
from tuning_support import (
    PLATFORM,
    TARGET,
    Guess,
    Ignorant,
    MadeUpMeasurer,
    masked_task,
    matmul_task,
)

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return [matmul_task(16, weight=3), matmul_task(32), matmul_task(8)]


def tune(tasks: list[Task], out: Path, measurer: Measurer | None = None, **more: Any) -> RunOutcome:
    limits = {key: more.pop(key) for key in list(more) if key in TuneConfig.__annotations__}
    ranker = more.pop("ranker", None) or Ignorant()
    return tune_tasks(
        tasks,
        target=TARGET,
        platform=PLATFORM,
        measurer=measurer or MadeUpMeasurer(),
        ranker=ranker,
        out=out,
        config=TuneConfig(**limits),
        model="made up",
        network="three",
        proposer=more.pop("proposer", None) or Guess(ranker),
        **more,
    )


@pytest.mark.parametrize("name", list(PROPOSERS))
def test_every_proposer_tunes_and_the_folder_says_which(
    name: str, tasks: list[Task], tmp_path: Path
) -> None:
    run = tune(tasks, tmp_path / "run", trials=24, proposer=name)
    head = json.loads((run.path / "run.json").read_text())
    assert (head["config"]["proposer"], run.trials, run.state) == (name, 24, "finished")
    lines = [json.loads(x) for x in (run.path / "batches.jsonl").read_text().splitlines()]
    origins = {row["origin"].split(":")[0] for line in lines for row in line["proposed"]}
    assert name in origins


def test_a_run_does_not_go_on_with_another_proposer(tasks: list[Task], tmp_path: Path) -> None:
    tune(tasks, tmp_path / "run", trials=12, proposer="random")
    with pytest.raises(TensoreseError, match="proposer random, but now it is annealing"):
        tune(tasks, tmp_path / "run", trials=24, proposer="annealing")


def trials_of(out: Path) -> list[tuple[str, str, tuple[float, ...]]]:
    with Store.open(out / "store") as store:
        rows = [m for m in store.measurements() if m.origin != "finalist"]
    return sorted((m.program.id, m.status.value, m.run_secs) for m in rows)


def test_trials_are_a_total_and_failures_count(tasks: list[Task], tmp_path: Path) -> None:
    run = tune(tasks, tmp_path / "run", trials=30)
    assert run.trials == len(trials_of(tmp_path / "run")) == 30
    assert run.state == "finished"
    lines = [json.loads(x) for x in (run.path / "batches.jsonl").read_text().splitlines()]
    assert lines[-1]["trials"] == 30
    assert {line["task"] for line in lines} == {task.workload.id for task in tasks}
    assert set(lines[0]["phases"]) >= {"space", "propose", "materialise", "measure", "learn"}


def test_the_best_is_written_with_what_deploy_needs(tasks: list[Task], tmp_path: Path) -> None:
    run = tune(tasks, tmp_path / "run", trials=30)
    best = json.loads((run.path / "best.json").read_text())
    fastest = {}
    with Store.open(run.path / "store") as store:
        for id_, measurement in store.best(PLATFORM.name).items():
            fastest[id_] = measurement
    assert best.keys() == fastest.keys() == {task.workload.id for task in tasks}
    for id_, entry in best.items():
        assert entry["program"] == fastest[id_].program.id
        assert entry["sketch"]["body"] and entry["decisions"] and "tail" in entry
        assert len(entry["remeasured"]) == 3
        assert entry["weight"] in (1, 3)


def test_the_same_command_again_does_nothing_more(tasks: list[Task], tmp_path: Path) -> None:
    tune(tasks, tmp_path / "run", trials=20)
    measurer = MadeUpMeasurer()
    run = tune(tasks, tmp_path / "run", measurer, trials=20)
    assert (run.trials, measurer.batches) == (20, [])
    more = tune(tasks, tmp_path / "run", trials=28)
    assert more.trials == 28
    programs = [row[0] for row in trials_of(tmp_path / "run")]
    assert len(set(programs)) == 28, "nothing is measured twice"


def test_a_run_that_only_fails_never_ends_well(tasks: list[Task], tmp_path: Path) -> None:
    with pytest.raises(MeasureError, match="made up to fail"):
        tune(tasks, tmp_path / "run", MadeUpMeasurer(status=Status.BUILD_ERROR), trials=8)
    assert len(trials_of(tmp_path / "run")) == 8


def test_an_exhausted_space_ends_a_run_without_limits(tmp_path: Path) -> None:
    run = tune([matmul_task(2, 1, 1)], tmp_path / "run", trials=100_000)
    assert run.reason == "nothing left to try"
    assert 0 < run.trials < 1000


def test_a_time_limit_that_start_up_ate_is_no_success(tasks: list[Task], tmp_path: Path) -> None:
    with pytest.raises(TuneError, match=r"--minutes must leave time to measure, but 1 were over"):
        tune(tasks, tmp_path / "run", minutes=1.0, started=time.monotonic() - 600)


def test_a_minutes_limit_leaves_time_for_the_end(tasks: list[Task], tmp_path: Path) -> None:
    begun = time.monotonic()
    run = tune(tasks, tmp_path / "run", minutes=0.05, started=begun)
    assert run.reason in ("time is up", "nothing left to try")
    assert time.monotonic() - begun < 20


class Recorder(Callback):
    def __init__(self) -> None:
        self.events: list[str] = []
        self.bests: list[float] = []

    def on_batch(self, event: BatchDone) -> None:
        self.events.append("batch")

    def on_best(self, event: NewBest) -> None:
        assert event.before is None or event.measurement.latency < 0.99 * event.before
        self.bests.append(event.measurement.latency)

    def on_end(self, event: Ended) -> None:
        self.events.append("end")

    def on_note(self, text: str) -> None:
        self.events.append(text)


class Broken(Callback):
    def on_batch(self, event: BatchDone) -> None:
        raise ValueError("no such logger")


def test_callbacks_are_told_and_a_broken_one_is_left_out(tasks: list[Task], tmp_path: Path) -> None:
    recorder = Recorder()
    run = tune(tasks, tmp_path / "run", trials=20, callbacks=[Broken(), recorder])
    assert run.trials == 20
    assert recorder.bests and recorder.events[-1] == "end"
    assert sum("Broken.on_batch raised ValueError" in text for text in recorder.events) == 1


def test_a_task_without_a_space_is_said_and_the_rest_is_tuned(
    tasks: list[Task], tmp_path: Path
) -> None:
    """MetaSchedule's rules fail on a product into whose sums a mask was fused."""
    masked = masked_task(16)
    recorder = Recorder()
    run = tune([*tasks, masked], tmp_path / "run", trials=16, callbacks=[recorder])
    assert run.winners.keys() == {task.workload.id for task in tasks}
    said = [text for text in recorder.events if "keeps its untuned kernel" in text]
    assert len(said) == 1 and said[0].startswith("masked keeps")


def test_a_run_of_tasks_without_a_space_names_one(tmp_path: Path) -> None:
    with pytest.raises(TuneError, match=r"none of 1 is; masked: not tuned: .*producer"):
        tune([masked_task(16)], tmp_path / "run", trials=4)


def test_tasks_are_selected_by_name_operator_and_id(tasks: list[Task]) -> None:
    assert select(tasks, ["matmul16"]) == [tasks[0]]
    assert select(tasks, ["dense"]) == tasks
    assert select(tasks, [tasks[2].workload.id[:8], "*16"]) == [tasks[0], tasks[2]]
    with pytest.raises(TuneError, match="matches none"):
        select(tasks, ["matmol16"])


@pytest.mark.parametrize("limits", [{"trials": -1}, {"minutes": 0.0}, {"early_stopping": -1}])
def test_senseless_limits_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(TuneError):
        TuneConfig(**limits)


def test_an_earlier_run_is_where_a_new_one_starts(tasks: list[Task], tmp_path: Path) -> None:
    first = tune(tasks[:1], tmp_path / "first", trials=24)
    winner = first.winners[tasks[0].workload.id].measurement.program.id
    with open_records([tmp_path / "first"], PLATFORM.name) as records:
        tune(tasks[:1], tmp_path / "second", trials=16, records=records)
    lines = (tmp_path / "second" / "batches.jsonl").read_text().splitlines()
    proposed = json.loads(lines[0])["proposed"]
    assert proposed[0]["program"] == winner and proposed[0]["origin"] == "store"
    assert any(p["origin"] == "guess" for p in proposed), "half of a first batch is new"
    with pytest.raises(TuneError, match="--warm"), open_records([tmp_path / "none"], "here"):
        pass


class ManyBuilders(MadeUpMeasurer):
    builds_at_once = 64
    submitted = 0

    def submit(self, candidates: Any) -> Any:
        self.submitted += 1
        return super().submit(candidates)


class OneBuilder(ManyBuilders):
    builds_at_once = 1


@pytest.mark.parametrize(
    ("measurer", "count", "flying"),
    [(ManyBuilders, 3, 3), (OneBuilder, 3, 2), (ManyBuilders, 1, 2)],
)
def test_other_tasks_keep_idle_builders_busy_a_task_alone_learns_first(
    tasks: list[Task], tmp_path: Path, measurer: type[ManyBuilders], count: int, flying: int
) -> None:
    seen = []
    farm = measurer()

    class Watch(Callback):
        def on_batch(self, event: BatchDone) -> None:
            seen.append(farm.submitted)

    tune(tasks[:count], tmp_path / "run", farm, trials=60, callbacks=[Watch()])
    assert seen[0] == flying


class KilledInABatch(MadeUpMeasurer):
    """Dies after some measurements of a batch were stored, as `kill -9` would have it."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def submit(self, candidates: Any) -> Any:
        if len(candidates) >= self.left:
            super().submit(candidates[: self.left])
            raise KeyboardInterrupt
        self.left -= len(candidates)
        return super().submit(candidates)


@pytest.mark.parametrize("after", [1, 3, 9, 17, 25, 30])
def test_stopped_anywhere_and_resumed_is_the_same_run(
    tasks: list[Task], tmp_path: Path, after: int
) -> None:
    tune(tasks, tmp_path / "whole", trials=32)
    with pytest.raises(KeyboardInterrupt):
        tune(tasks, tmp_path / "parts", KilledInABatch(after), trials=32)
    stored = len(trials_of(tmp_path / "parts"))
    assert stored >= min(after, 1)
    ranker = Ignorant()
    tune(tasks, tmp_path / "parts", trials=32, ranker=ranker)
    assert trials_of(tmp_path / "parts") == trials_of(tmp_path / "whole")
    assert len(ranker.told) == 32, "the ranker learns from the earlier sitting too"
    best = [json.loads((tmp_path / run / "best.json").read_text()) for run in ("whole", "parts")]
    assert best[0] == best[1]


def either(tasks: list[Task], fixed: float) -> list[EitherWay]:
    """The first task, or the last one, which takes a thousandth of a second or two."""
    first, other = (one.workload.id for one in (tasks[0], tasks[2]))
    ways = (Way(m=4, calls={first: 3}, fixed=fixed), Way(m=0, calls={other: 1}))
    return [EitherWay(key=(1, 8, 8, 16, 16), ways=ways)]


@pytest.mark.parametrize(("fixed", "chosen"), [(0.0, 0), (9e-3, 0), (-9e-3, 4)])
def test_the_way_that_was_measured_faster_is_tuned_on_and_kept(
    tasks: list[Task], tmp_path: Path, fixed: float, chosen: int
) -> None:
    tasks = [*tasks[:2], replace(tasks[2], weight=0)]
    ended: list[str] = []

    class Watch(Callback):
        def on_end(self, event: Ended) -> None:
            ended.extend(line.workload for line in event.tasks)

    run = tune(tasks, tmp_path / "run", trials=60, ways=either(tasks, fixed), callbacks=[Watch()])
    ids = [one.workload.id for one in tasks]
    kept, left = (ids[2], ids[0]) if chosen == 0 else (ids[0], ids[2])
    (one,) = run.ways
    assert one.decided and one.ways[0].m == chosen
    head = json.loads((run.path / "run.json").read_text())
    assert {row["workload"]: row["weight"] for row in head["tasks"]}[left] == 0
    assert recorded_ways(run.path) == (one,)
    best = json.loads((run.path / "best.json").read_text())
    assert best.keys() == run.winners.keys() == set(ended) == {ids[1], kept}
    assert {entry["weight"] for entry in best.values()} == {1, 1 if chosen == 0 else 3}
    lines = [json.loads(x) for x in (run.path / "batches.jsonl").read_text().splitlines()]
    visited = [line["task"] for line in lines]
    handful = lines[visited.index(ids[2])]["proposed"]
    assert run.trials == 60 and len(handful) == 4 and kept in visited[-3:]
    last = len(visited) - visited[::-1].index(left)
    assert last <= visited.index(ids[2]) + 2, "but for what was in flight, nothing more"


@pytest.mark.parametrize("after", [3, 9, 25, 40])
def test_a_run_that_decides_is_the_same_when_it_was_stopped(
    tasks: list[Task], tmp_path: Path, after: int
) -> None:
    tasks = [*tasks[:2], replace(tasks[2], weight=0)]
    tune(tasks, tmp_path / "whole", trials=48, ways=either(tasks, 9e-3))
    with pytest.raises(KeyboardInterrupt):
        tune(
            tasks,
            tmp_path / "parts",
            KilledInABatch(after),
            trials=48,
            ways=either(tasks, 9e-3),
        )
    ways = recorded_ways(tmp_path / "parts")
    assert ways
    if ways[0].decided:  # as the network is extracted then
        tasks = [replace(tasks[0], weight=0), tasks[1], replace(tasks[2], weight=1)]
    tune(tasks, tmp_path / "parts", trials=48, ways=ways)
    assert trials_of(tmp_path / "parts") == trials_of(tmp_path / "whole")
    best = [json.loads((tmp_path / run / "best.json").read_text()) for run in ("whole", "parts")]
    assert best[0] == best[1]
    assert recorded_ways(tmp_path / "parts") == recorded_ways(tmp_path / "whole")


def test_a_limit_that_was_lowered_holds_for_what_was_begun(
    tasks: list[Task], tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        tune(tasks, tmp_path / "run", KilledInABatch(20), trials=200)
    stored = len(trials_of(tmp_path / "run"))
    run = tune(tasks, tmp_path / "run", trials=stored + 2)
    assert run.trials == len(trials_of(tmp_path / "run")) == stored + 2


def test_killed_at_random_moments_a_run_ends_as_if_it_had_not_been(
    tasks: list[Task], tmp_path: Path
) -> None:
    """kill -9 of a real process, replaying stored measurements."""
    driver = Path(__file__).parents[1] / "driver_replayed_run.py"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}

    def start(out: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, str(driver), str(tmp_path / out)], env=environment)

    assert start("whole").wait() == 0
    journal = tmp_path / "parts" / "batches.jsonl"
    seeded = random.Random(7)
    for _ in range(5):
        before = journal.stat().st_size if journal.exists() else 0
        process = start("parts")
        while process.poll() is None and not _grew(journal, before):
            time.sleep(0.01)
        time.sleep(0.3 * seeded.random())
        process.kill()
        assert process.wait() == -9, "the driver must be slow enough to be killed"
    assert start("parts").wait() == 0
    assert trials_of(tmp_path / "parts") == trials_of(tmp_path / "whole")
    best = [json.loads((tmp_path / run / "best.json").read_text()) for run in ("whole", "parts")]
    assert best[0] == best[1]


def _grew(path: Path, size: int) -> bool:
    return path.exists() and path.stat().st_size > size


class DiesAmongFinalists(MadeUpMeasurer):
    """Times four finalists and is gone."""

    def submit(self, candidates: Any) -> Any:
        if candidates and candidates[0].origin == "finalist":
            super().submit(candidates[:4])
            raise KeyboardInterrupt
        return super().submit(candidates)


def test_killed_among_the_finalists_it_times_the_rest_of_them(
    tasks: list[Task], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        tune(tasks, out, DiesAmongFinalists(), trials=30)
    tune(tasks, out, trials=30)
    measurer = MadeUpMeasurer()
    tune(tasks, out, measurer, trials=30)
    assert measurer.batches == [], "the third command finds everything done"
    with Store.open(out / "store") as store:
        turns = Counter(m.program.id for m in store.measurements() if m.origin == "finalist")
    assert set(turns.values()) == {3} and len(turns) > 4
    best = json.loads((out / "best.json").read_text())
    assert all(len(entry["remeasured"]) == 3 for entry in best.values())


def test_tasks_with_too_few_trials_are_named(tasks: list[Task], tmp_path: Path) -> None:
    recorder = Recorder()
    tune(tasks, tmp_path / "run", trials=5, callbacks=[recorder])
    said = " ".join(map(str, recorder.events))
    assert "had fewer than 3 trials" in said
    recorder = Recorder()
    tune(tasks, tmp_path / "more", trials=9, callbacks=[recorder])
    assert not any("fewer than 3 trials" in str(note) for note in recorder.events)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whatever_asks_a_run_to_end_ends_it_well(
    tasks: list[Task], tmp_path: Path, number: signal.Signals
) -> None:
    class Asked(MadeUpMeasurer):
        def submit(self, candidates: Any) -> Any:
            if len(self.batches) == 2:
                signal.raise_signal(number)
            return super().submit(candidates)

    run = tune(tasks, tmp_path / "run", Asked(), trials=60)
    assert run.state == "interrupted" and 0 < run.trials < 60
    assert tune(tasks, tmp_path / "run", trials=60).trials == 60


@pytest.mark.parametrize("damage", ["batches.jsonl", "pending.json", "best.json"])
def test_what_is_damaged_is_learnt_again_from_the_store(
    tasks: list[Task], tmp_path: Path, damage: str
) -> None:
    out = tmp_path / "run"
    tune(tasks, out, trials=30)
    best = json.loads((out / "best.json").read_text())
    lines = (out / damage).read_text().splitlines() if (out / damage).exists() else ["", ""]
    (out / damage).write_text("\n".join([lines[0][:20], *lines[1:]]) + "\n")
    recorder, measurer = Recorder(), MadeUpMeasurer()
    run = tune(tasks, out, measurer, trials=30, callbacks=[recorder])
    assert (run.trials, len(trials_of(out))) == (30, 30)
    again = json.loads((out / "best.json").read_text())
    assert {t: b["program"] for t, b in again.items()} == {t: b["program"] for t, b in best.items()}
    assert damage == "best.json" or any("damaged" in text for text in recorder.events)
    assert tune(tasks, out, trials=36).trials == 36
    assert len({row[0] for row in trials_of(out)}) == 36


def test_going_on_with_a_long_run_shows_progress(
    tasks: list[Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tune(tasks, tmp_path / "run", trials=30)
    monkeypatch.setattr(tuner, "_TELL_SECS", 0.0)
    recorder = Recorder()
    tune(tasks, tmp_path / "run", trials=31, callbacks=[recorder])
    said = [text for text in recorder.events if "learning from earlier sittings" in text]
    assert len(said) > 1 and re.search(r"1 of \d+ batches", said[0] + said[1])
