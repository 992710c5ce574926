"""The user's store: bounded, shared by processes, and never in the way."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from measurements_support import matmul_measurement
from tensorese.records import user_store
from tensorese.records.user_store import PROGRAMS, Effort, Found, Known, UserStore

pytestmark = pytest.mark.null


def known(*secs: float, run: str = "r", trials: int = 10, first: int = 0) -> Known:
    rows = [matmul_measurement(decisions=(first + i, 1, 2), secs=(s,)) for i, s in enumerate(secs)]
    found = tuple(Found(program=m.program, latency=m.latency, run=run) for m in rows)
    effort = Effort(path=f"/runs/{run}", time=time.time(), trials=trials, secs=5.0)
    return Known(workload=rows[0].program.workload, programs=found, runs={run: effort})


@pytest.fixture
def store(tmp_path: Path) -> UserStore:
    return UserStore(tmp_path / "user", "some-2c", {"target": "{}", "cache": "hot"})


def only(store: UserStore) -> Known:
    (one,) = store.read().values()
    return one


def test_what_is_added_is_read(store: UserStore) -> None:
    store.add([known(3.0, 1.0)])
    one = only(store)
    assert [found.latency for found in one.programs] == [3.0, 1.0], "the winner stays first"
    assert (one.trials, one.secs, one.latency) == (10, 5.0, 3.0)
    assert one.workload.module == "" and one.workload.id == known(1.0).workload.id
    assert not store.problem


def test_only_the_best_few_are_kept_and_new_times_replace_old(store: UserStore) -> None:
    store.add([known(*(1.0 + i for i in range(PROGRAMS)), run="a")])
    store.add([known(9.0, 2.5, run="b")])
    one = only(store)
    assert [found.latency for found in one.programs] == [9.0, 2.5, 3.0, 4.0, 5.0][:PROGRAMS]
    assert [found.run for found in one.programs] == ["a"] * PROGRAMS, "who found it stays"
    assert one.trials == 20


def test_a_run_counts_once_and_old_ones_are_summed(store: UserStore) -> None:
    for number in range(40):
        store.add([known(1.0, run=f"r{number}", trials=2)])
        store.add([known(1.0, run=f"r{number}", trials=3)])
    one = only(store)
    assert one.trials == 40 * 3 and len(one.runs) <= 17


def test_failed_programs_go(store: UserStore) -> None:
    store.add([known(1.0, 2.0)])
    wrong = only(store).programs[0].program.id
    store.add([known(4.0, run="b", first=7)], {wrong})
    assert wrong not in {found.program.id for found in only(store).programs}


def test_other_conditions_know_nothing(store: UserStore) -> None:
    store.add([known(1.0)])
    for platform, conditions in (
        ("other-2c", {"target": "{}", "cache": "hot"}),
        ("some-2c", {"target": "{}", "cache": "rotated"}),
    ):
        assert UserStore(store.place, platform, conditions).read() == {}


def test_a_platforms_name_makes_no_path(store: UserStore) -> None:
    odd = UserStore(store.place, "../../a b", {})
    odd.add([known(1.0)])
    assert odd.folder.parent == store.place and len(odd.read()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"version": 2}',
        "[" * 100_000,
        '{"version": 1, "workload": 3}',
        "\xff",
    ],
)
def test_a_damaged_file_is_passed_over_and_replaced(store: UserStore, text: str) -> None:
    store.add([known(1.0)])
    (path,) = store.folder.glob("*.json")
    path.write_text(text)
    assert store.read() == {} and "1 damaged files" in store.problem
    store.add([known(2.0)])
    assert only(store).latency == 2.0 and not store.problem


@pytest.mark.parametrize("latency", [0, -1, float("nan"), float("inf"), "fast"])
def test_a_latency_that_cannot_be_is_damage(store: UserStore, latency: object) -> None:
    store.add([known(1.0)])
    (path,) = store.folder.glob("*.json")
    row = json.loads(path.read_text())
    row["programs"][0]["latency"] = latency
    path.write_text(json.dumps(row))
    assert store.read() == {} and store.problem


def test_the_number_of_tasks_is_bounded(store: UserStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_store, "TASKS", 3)
    store.add([known(1.0)])
    (path,) = store.folder.glob("*.json")
    for number in range(5):
        copy = path.with_name(f"{number}.json")
        copy.write_text("{}")
        os.utime(copy, (number, number))
    store.add([known(2.0)])
    left = {one.name for one in store.folder.glob("*.json")}
    assert left == {path.name, "3.json", "4.json"}


def _feed(place: Path, number: int) -> None:
    store = UserStore(place, "some-2c", {})
    for turn in range(10):
        run = f"{number}-{turn}"
        store.add([known(1.0 + number + turn / 100, run=run, first=number * 100 + turn)])


def test_two_processes_add_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=_feed, args=(tmp_path, number)) for number in (0, 1)]
    for one in both:
        one.start()
    for one in both:
        one.join(60)
        assert one.exitcode == 0
    assert only(UserStore(tmp_path, "some-2c", {})).trials == 200


def test_a_place_that_cannot_be_written_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = UserStore(tmp_path / "file", "some-2c", {})
    store.add([known(1.0)])
    assert "\n" not in store.problem and store.problem
