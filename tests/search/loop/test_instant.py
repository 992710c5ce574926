"""`--trials 0`: a run folder with programs that nobody timed, and what may follow."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from writer_support import micro_writer

from tensorese.errors import TensoreseError
from tensorese.models.base import Card, save_model
from tensorese.models.catalog import SHIPPED
from tensorese.records.nouns import Platform
from tensorese.records.run_folder import RunFolder
from tensorese.records.store import Store
from tensorese.records.task import Task
from tensorese.search.loop.config import TuneConfig, TuneError
from tensorese.search.loop.events import Callback, Ended
from tensorese.search.loop.instant import KNOWN, choose_instantly, judges_named
from tensorese.search.loop.tune_tasks import RunOutcome, tune_tasks
from tensorese.search.proposers.shortlist import Judges
from tuning_support import PLATFORM, TARGET, Guess, Ignorant, MadeUpMeasurer, matmul_task

HERE = Platform(name="znver4-2c", target='{"kind":"llvm","mcpu":"znver4","num-cores":2}')


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return [matmul_task(16, weight=3), matmul_task(32)]


def choose(tasks: list[Task], out: Path, judges: Judges | None = None, **more: Any) -> RunOutcome:
    return choose_instantly(
        tasks,
        target=TARGET,
        platform=PLATFORM,
        judges=judges or Judges(ranker=Ignorant(), head="elsewhere-2c"),
        out=out,
        config=TuneConfig(trials=0, **more.pop("limits", {})),
        model="made up",
        network="two",
        proposer="guess",
        **more,
    )


def measure(all_tasks: list[Task], out: Path, **limits: Any) -> RunOutcome:
    ranker = Ignorant()
    return tune_tasks(
        all_tasks,
        target=TARGET,
        platform=PLATFORM,
        measurer=MadeUpMeasurer(),
        ranker=ranker,
        out=out,
        config=TuneConfig(**limits),
        model="made up",
        network="two",
        proposer=Guess(ranker),
    )


@pytest.mark.tvm
def test_every_task_gets_a_program_without_a_number(tasks: list[Task], tmp_path: Path) -> None:
    ends: list[Ended] = []

    class Watch(Callback):
        def on_end(self, event: Ended) -> None:
            ends.append(event)

    run = choose(tasks, tmp_path / "run", callbacks=[Watch()])
    assert (run.state, run.trials, run.winners) == ("finished", 0, {})
    ids = {task.workload.id for task in tasks}
    assert set(run.chosen) == ids
    text = (run.path / "best.json").read_text()
    assert "NaN" not in text and "Infinity" not in text
    entries = json.loads(text)
    assert {entry["latency"] for entry in entries.values()} == {None}
    assert all(entry["tail"] and entry["origin"] for entry in entries.values())
    best = RunFolder.read(run.path).best()
    assert {one.latency for one in best.values()} == {None}
    head = json.loads((run.path / "run.json").read_text())
    assert head["config"]["judged_for"] == "elsewhere-2c"
    assert all(line.latency is None and line.chosen for line in ends[0].tasks)
    assert choose(tasks, tmp_path / "again").chosen == run.chosen


@pytest.mark.tvm
def test_measuring_goes_on_in_the_same_folder(tasks: list[Task], tmp_path: Path) -> None:
    out = tmp_path / "run"
    choose(tasks, out)
    run = measure(tasks, out, trials=8, tasks=("matmul16",))
    assert (run.state, run.trials) == ("finished", 8)
    best = RunFolder.read(out).best()
    timed = best[tasks[0].workload.id].latency
    assert timed is not None and math.isfinite(timed)
    assert best[tasks[1].workload.id].latency is None, "what was chosen stays until it is measured"
    run = choose(tasks, out)
    assert run.trials == 8 and set(run.chosen) == {tasks[1].workload.id}
    assert RunFolder.read(out).best()[tasks[0].workload.id].latency == timed


@pytest.mark.tvm
def test_what_tvm_refuses_is_passed_over(
    tasks: list[Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorese.search.loop import instant

    whole = instant.materialise
    refused: list[Any] = []

    def picky(space: Any, rows: Any, *arguments: Any, **options: Any) -> Any:
        made = whole(space, rows, *arguments, **options)
        if len(refused) < 2:
            refused.extend(rows)
            made = [type(one)(program=one.program, error="too wide") for one in made]
        return made

    monkeypatch.setattr(instant, "materialise", picky)
    run = choose(tasks[:1], tmp_path / "run")
    assert len(refused) == 2 and set(run.chosen) == {tasks[0].workload.id}

    refused.clear()
    monkeypatch.setattr(instant, "_TRIES", 1)
    with pytest.raises(TuneError, match=r"none of 1 is; matmul16: not tuned: too wide"):
        choose(tasks[:1], tmp_path / "none")


@pytest.mark.null
def test_without_a_model_nobody_can_choose() -> None:
    with pytest.raises(TuneError, match="--model none; name auto or a model's folder"):
        judges_named("none", "evolution", HERE, [], on_cpu=True)
    strange = Platform(name="metal-device", target='{"kind":"metal"}')
    with pytest.raises(TuneError, match="needs a model of metal-device's kind"):
        judges_named("auto", "evolution", strange, [], on_cpu=False)
    with pytest.raises(TensoreseError, match="--model must be auto, none or a model's folder"):
        judges_named("no_such_folder", "evolution", HERE, [], on_cpu=True)


@pytest.mark.null
def test_the_line_names_the_platform_that_the_model_speaks_for() -> None:
    judges, lines = judges_named("auto", "evolution", HERE, [], on_cpu=True)
    assert judges.head == "znver4-2c" and "trained on znver4-2c" in lines[0]
    newer = Platform(name="znver5-2c", target='{"kind":"llvm","mcpu":"znver5","num-cores":2}')
    judges, lines = judges_named("auto", "evolution", newer, [], on_cpu=True)
    assert judges.head == "znver4-2c" and "znver4-2c is the nearest" in lines[0]
    assert lines[0].startswith("nothing is measured: ")


@pytest.mark.null
def test_a_writer_that_was_named_takes_part(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "writer", micro_writer(("znver4-2c",)), Card())
    judges, lines = judges_named("auto", f"tlm:{folder}", HERE, [], on_cpu=True)
    assert judges.writer is not None and judges.writer.model is not None
    assert "no model that writes" not in lines[0]
    with pytest.raises(TensoreseError, match=r"a model is a folder with|must name the folder"):
        judges_named("auto", "tlm:no_such_folder", HERE, [], on_cpu=True)


@pytest.mark.null
def test_known_programs_ship_for_every_platform_of_a_model() -> None:
    own = {path.parent.name for path in SHIPPED.glob("*/config.json") if "-" in path.parent.name}
    with Store.open(KNOWN) as store:
        platforms = own & {"emeraldrapids-2c", "znver3-2c", "znver4-2c"}
        assert platforms and platforms <= store.platforms()
        assert len(store.best("znver4-2c")) > 500
        assert store.info()["test_rows"] == 0


@pytest.mark.null
@pytest.mark.parametrize("limits", [{"trials": -1}, {"trials": 0, "minutes": 5.0}])
def test_senseless_limits_are_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(TuneError, match="--trials"):
        TuneConfig(**limits)
