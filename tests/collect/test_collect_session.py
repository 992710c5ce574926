"""Collecting for real on this CPU: programs are drawn, measured, kept, and not drawn again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from collect_support import FOUR_CORES, ONE_CORE, collect, command, matmul, task_list, tvm
from tensorese.collect.stream import Stream
from tensorese.measure.candidates import workload_of
from tensorese.records.store import Store
from tensorese.space.space import task_space
from tensorese.targets import Target

pytestmark = pytest.mark.tvm


def stream(target: str, seed: int = 0) -> Stream:
    module = matmul(64)
    return Stream(task_space(module, Target.from_json(target)), workload_of(module), seed)


def names(one: Stream, picks: list[Any]) -> list[str]:
    return [one.space.program(s, row, one.workload).id for s, row in picks]


def test_two_platforms_draw_the_same_programs_whatever_is_asked_at_once() -> None:
    here, there = stream(ONE_CORE), stream(FOUR_CORES)
    mine = names(here, here.random(30))
    theirs = [n for _ in range(10) for n in names(there, there.random(3))]
    assert len(set(mine)) == 30
    assert set(mine) == set(theirs)
    other = stream(ONE_CORE, seed=1)
    assert len(set(mine) & set(names(other, other.random(30)))) < 10


def test_draws_are_spread_over_sketches_and_leave_out_what_is_known() -> None:
    one = stream(ONE_CORE)
    picks = one.random(30)
    counts = [sum(s == sketch for s, _ in picks) for sketch in {s for s, _ in picks}]
    assert max(counts) - min(counts) <= 1
    again = stream(ONE_CORE)
    again.seen.update(names(one, picks))
    assert not set(names(again, again.random(30))) & set(names(one, picks))


def test_mutations_are_new_legal_neighbours() -> None:
    one = stream(ONE_CORE)
    sketch, row = one.random(1)[0]
    parent = one.space.sketches[sketch].sketch.id
    picks = one.mutations([(parent, row), ("no such sketch", row)], 8)
    assert len(set(names(one, picks))) == 8
    assert all(s == sketch and one.space.is_legal(s, r) for s, r in picks)
    assert row not in [r for _, r in picks]


def test_programs_of_others_are_taken_when_legal_here() -> None:
    one, two = stream(ONE_CORE), stream(FOUR_CORES)
    sketch, row = two.random(1)[0]
    name = two.space.sketches[sketch].sketch.id
    bad = [3] * len(row)
    assert one.named([(name, row), (name, row), (name, bad), (name, row[:-1])]) == [(sketch, row)]


def test_a_small_space_is_exhausted_not_repeated() -> None:
    x = tvm.te.placeholder((8,), name="x")
    module = tvm.IRModule(
        {"main": tvm.te.create_prim_func([x, tvm.te.compute((8,), lambda i: x[i] + 1.0)])}
    )
    one = Stream(task_space(module, Target.from_json(ONE_CORE)), workload_of(module), 0)
    picks = one.random(100)
    assert 1 <= len(picks) < 100 and len(set(picks)) == len(picks)
    assert one.exhausted


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return task_list(tmp_path_factory.mktemp("tasks") / "tasks.parquet")


def test_a_run_is_resumed_and_measured_again(tasks: Path, tmp_path: Path) -> None:
    out = tmp_path / "store"
    common = ("--tasks", tasks, "--target", ONE_CORE, "--platform", "here", "--json")
    first = collect(*common, "--out", out, "--minutes", "2", "--per-task", "4")
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["measured"] == 8
    second = collect(*common, "--out", out, "--minutes", "2", "--per-task", "6")
    assert json.loads(second.stdout)["measured"] == 4
    with Store.open(out) as store:
        rows = store.table(["program_id", "split", "origin"]).to_pylist()
    assert len({row["program_id"] for row in rows}) == 12
    assert sum(row["split"] == "test" for row in rows) == 6
    again = collect(*common, "--programs", out, "--again", "3", "--out", tmp_path / "noise")
    result = json.loads(again.stdout)
    assert result["measured"] >= 3, again.stderr
    here = os.uname().nodename
    assert result["hosts"][here]["measured"] == result["again"][here]["n"] == result["measured"]
    assert result["again"][here]["p90"] >= result["again"][here]["median"] >= 0
    with Store.open(tmp_path / "noise") as store:
        twice = {row["program_id"] for row in store.table(["program_id"]).to_pylist()}
    assert twice <= {row["program_id"] for row in rows}
    whole = ("--split", "test", "--again", "6", "--group", "6")
    again = collect(*common, "--programs", out, *whole, "--out", tmp_path / "whole")
    assert json.loads(again.stdout)["measured"] == 6, again.stderr
    with Store.open(tmp_path / "whole") as store:
        twice = {row["program_id"] for row in store.table(["program_id"]).to_pylist()}
    assert twice == {row["program_id"] for row in rows if row["split"] == "test"}


def test_programs_of_a_store_and_nothing_else(tasks: Path, tmp_path: Path) -> None:
    common = ("--tasks", tasks, "--target", ONE_CORE, "--minutes", "2", "--json")
    first = collect(*common, "--platform", "one", "--out", tmp_path / "one", "--per-task", "3")
    assert first.returncode == 0, first.stderr
    named = ("--programs", tmp_path / "one", "--only-programs")
    second = collect(*common, "--platform", "two", "--out", tmp_path / "two", *named)
    assert json.loads(second.stdout)["measured"] == 6, second.stderr
    with Store.open(tmp_path / "one") as one, Store.open(tmp_path / "two") as two:
        wanted, got = (set(s.table(["program_id"])["program_id"].to_pylist()) for s in (one, two))
    assert wanted == got


def test_sigterm_ends_like_ctrl_c_and_keeps_what_was_measured(tasks: Path, tmp_path: Path) -> None:
    out = tmp_path / "store"
    options = ["--tasks", tasks, "--target", ONE_CORE, "--platform", "here", "--minutes", "5"]
    with subprocess.Popen(command(*options, "--out", out), stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not any(out.glob("journal-*")):
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 130
    with Store.open(out) as store:
        assert store.table(["id"]).num_rows > 0
        assert not store.problems
    assert not any(out.glob("journal-*")) and any(out.glob("measurements-*.parquet"))
