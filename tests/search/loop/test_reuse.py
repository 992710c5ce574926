"""What one run found is where the next begins, and counts to what that may spend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tensorese.measure.base import Measurer, Ticket
from tensorese.records.nouns import Status
from tensorese.records.rows import row_sketch
from tensorese.records.run_folder import REUSED
from tensorese.records.store import Store
from tensorese.records.task import Task
from tensorese.records.user_store import VARIABLE, UserStore
from tensorese.search.loop.config import TuneConfig
from tensorese.search.loop.events import Callback
from tensorese.search.loop.reuse import counted, prefer, user_store
from tensorese.search.loop.scheduler import AGAIN, Progress
from tensorese.search.loop.task import ORIGIN
from tensorese.search.loop.tune_tasks import RunOutcome, tune_tasks
from tuning_support import PLATFORM, TARGET, Guess, MadeUpMeasurer, matmul_task

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return [matmul_task(16, weight=3), matmul_task(32), matmul_task(8)]


@pytest.fixture
def store(tmp_path: Path) -> UserStore:
    return UserStore(tmp_path / "user", PLATFORM.name, {"target": TARGET.to_json()})


class Notes(Callback):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_note(self, text: str) -> None:
        self.lines.append(text)


def tune(
    tasks: list[Task],
    out: Path,
    store: UserStore | None,
    measurer: Measurer | None = None,
    notes: Notes | None = None,
    **limits: Any,
) -> RunOutcome:
    return tune_tasks(
        tasks,
        target=TARGET,
        platform=PLATFORM,
        measurer=measurer or MadeUpMeasurer(),
        ranker=Guess().ranker,
        out=out,
        config=TuneConfig(**limits),
        network="three",
        proposer=Guess(),
        callbacks=[notes] if notes else [],
        store=store,
    )


def origins(run: Path) -> list[str]:
    lines = [json.loads(line) for line in (run / "batches.jsonl").read_text().splitlines()]
    return [row["origin"] for line in lines for row in line["proposed"]]


def winners(run: RunOutcome) -> dict[str, tuple[str, float]]:
    return {id_: (w.measurement.program.id, w.latency) for id_, w in run.winners.items()}


def test_the_same_again_measures_the_best_again_and_no_more(
    tasks: list[Task], tmp_path: Path, store: UserStore
) -> None:
    first = tune(tasks, tmp_path / "a", store, trials=60)
    notes = Notes()
    again = tune(tasks, tmp_path / "b", store, notes=notes, trials=60)
    assert (again.trials, again.reason) == (AGAIN * len(tasks), "earlier runs did the rest")
    assert set(origins(again.path)) == {ORIGIN}
    assert winners(again) == winners(first)
    assert any(line.startswith("3 of 3 tasks are known from 60 trials") for line in notes.lines)
    fresh = tune(tasks, tmp_path / "c", None, trials=60)
    assert fresh.trials == 60 and ORIGIN not in origins(fresh.path)


def test_more_trials_go_on_where_the_earlier_run_ended(
    tasks: list[Task], tmp_path: Path, store: UserStore
) -> None:
    tune(tasks, tmp_path / "a", store, trials=30)
    more = tune(tasks, tmp_path / "b", store, trials=50)
    assert more.trials == 20
    assert {one.trials for one in store.read().values()} and sum(
        one.trials for one in store.read().values()
    ) == 50


def test_what_is_not_known_keeps_its_share(tmp_path: Path, store: UserStore) -> None:
    known, new = matmul_task(16), matmul_task(32)
    tune([known], tmp_path / "a", store, trials=500)
    run = tune([known, new], tmp_path / "b", store, trials=40)
    lines = [json.loads(x) for x in (run.path / "batches.jsonl").read_text().splitlines()]
    spent = {task.workload.id: 0 for task in (known, new)}
    for line in lines:
        spent[line["task"]] += len(line["proposed"])
    assert spent[known.workload.id] == AGAIN
    assert 10 <= spent[new.workload.id] < 40


def test_a_limit_counts_all_or_the_share_of_what_is_known() -> None:
    def progress(best: float, earlier: int = 0, secs: float = 0.0) -> Progress:
        one = Progress(name="", operator="", weight=1, flops=1.0, bytes=1.0, earlier=earlier)
        one.earlier_secs, one.best, one.valid, one.trials = secs, best, 1, 3
        return one

    known = progress(1.0, 80, 50.0)
    assert counted([progress(1.0)], 100, 60.0) == (0, 0.0)
    assert counted([known], 100, 60.0) == (80, 50.0)
    assert counted([known], 40, 30.0) == (40, 30.0)
    assert counted([known, progress(3.0)], 100, 60.0) == (25, 15.0)


def test_known_programs_that_do_not_run_any_more_count_for_nothing(
    tasks: list[Task], tmp_path: Path, store: UserStore
) -> None:
    tune(tasks, tmp_path / "a", store, trials=60)
    gone = tasks[0].workload.id
    path = store.folder / f"{gone}.json"
    path.write_text(path.read_text().replace("SampleCategorical", "SampleCategorica1"))
    path.write_text(path.read_text().replace("SamplePerfectTile", "SamplePerfectTi1e"))
    row = json.loads(path.read_text())
    ids = {sketch["id"]: row_sketch(sketch).id for sketch in row["sketches"]}
    for found in row["programs"]:
        found["sketch"] = ids[found["sketch"]]
    path.write_text(json.dumps(row))
    assert not store.problem and len(store.read()) == 3
    run = tune(tasks, tmp_path / "b", store, trials=60)
    lines = [json.loads(x) for x in (run.path / "batches.jsonl").read_text().splitlines()]
    spent = {task.workload.id: 0 for task in tasks}
    for line in lines:
        spent[line["task"]] += len(line["proposed"])
    assert spent[gone] > AGAIN, "it is tuned as if it were new"


class Slower(MadeUpMeasurer):
    """A machine on which one program does not compute what it did."""

    def __init__(self, wrong: str) -> None:
        super().__init__()
        self.wrong = wrong

    def submit(self, candidates: Any) -> Ticket:
        (good, bad) = ([], [])
        for candidate in candidates:
            (bad if candidate.program.id == self.wrong else good).append(candidate)
        self.status = Status.OK
        if not bad:
            return super().submit(candidates)
        ticket = Ticket(len(candidates))
        for at, candidate in enumerate(candidates):
            self.status = Status.WRONG_OUTPUT if candidate in bad else Status.OK
            (one,) = super().submit([candidate])
            ticket.put((at, one[1]))
        return ticket


def test_a_stale_time_decides_nothing_and_a_wrong_program_is_forgotten(
    tasks: list[Task], tmp_path: Path, store: UserStore
) -> None:
    first = tune(tasks, tmp_path / "a", store, trials=60)
    task = tasks[0].workload.id
    best = first.winners[task].measurement.program.id
    assert store.read()[task].programs[0].program.id == best
    again = tune(tasks, tmp_path / "b", store, Slower(best), trials=60)
    assert again.winners[task].measurement.program.id != best
    assert best not in {found.program.id for found in store.read()[task].programs}


def test_a_resumed_run_knows_what_it_knew_and_is_counted_once(
    tasks: list[Task], tmp_path: Path, store: UserStore
) -> None:
    tune(tasks, tmp_path / "a", store, trials=30)
    tune(tasks, tmp_path / "b", store, trials=50)
    tune(tasks, tmp_path / "b", store, trials=60)
    assert sum(one.trials for one in store.read().values()) == 60
    known = json.loads((tmp_path / "b" / REUSED).read_text())["tasks"]
    assert sum(r["trials"] for one in known.values() for r in one["runs"].values()) == 30
    with Store.open(tmp_path / "b" / "store") as kept:
        assert sum(m.origin != "finalist" for m in kept.measurements()) == 30


def test_the_finder_of_a_program_stays_known(
    tasks: list[Task], tmp_path: Path, store: UserStore
) -> None:
    tune(tasks, tmp_path / "a", store, trials=60)
    tune(tasks, tmp_path / "b", store, trials=60)
    for one in store.read().values():
        finder = one.runs[one.programs[0].run]
        assert finder.path == str((tmp_path / "a").resolve())


def test_what_is_fastest_in_the_network_comes_first(
    tasks: list[Task], tmp_path: Path, store: UserStore
) -> None:
    tune(tasks, tmp_path / "a", store, trials=60)
    id_ = tasks[0].workload.id
    before = store.read()[id_]
    second = before.programs[1]
    prefer(store, [(second.program, second.latency)])
    after = store.read()[id_]
    assert after.programs[0] == second and after.runs == before.runs
    assert len(after.programs) == len(before.programs)


def test_other_shapes_begin_with_programs_like_theirs(tmp_path: Path, store: UserStore) -> None:
    tune([matmul_task(16)], tmp_path / "a", store, trials=60)
    run = tune([matmul_task(64)], tmp_path / "b", store, trials=16)
    assert "store:similar" in origins(run.path)


def test_a_damaged_store_is_one_note(tasks: list[Task], tmp_path: Path, store: UserStore) -> None:
    tune(tasks, tmp_path / "a", store, trials=60)
    broken = sorted(store.folder.glob("*.json"))[0]
    broken.write_text(broken.read_text()[:100])
    notes = Notes()
    run = tune(tasks, tmp_path / "b", store, notes=notes, trials=60)
    assert run.state == "finished"
    assert sum("passed over 1 damaged files" in line for line in notes.lines) == 1
    assert len(store.read()) == 3 and not store.problem


def test_a_store_that_cannot_be_is_one_note(tasks: list[Task], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    notes = Notes()
    store = UserStore(tmp_path / "file", PLATFORM.name, {})
    assert tune(tasks, tmp_path / "a", store, notes=notes, trials=12).state == "finished"
    assert sum("is not kept for later ones" in line for line in notes.lines) == 1


def test_the_users_store_is_off_in_tests_and_where_the_variable_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert user_store(TARGET, PLATFORM) is None
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    hot, rotated = (user_store(TARGET, PLATFORM, cache=c) for c in ("hot", "rotated"))
    assert hot is not None and rotated is not None
    assert hot.folder.parent == tmp_path and hot.folder != rotated.folder
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    named = user_store(TARGET, PLATFORM)
    assert named is not None and named.place == tmp_path / "data" / "tensorese" / "store"
