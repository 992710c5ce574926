"""The learning process: real models, real spaces, stored measurements."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from learning_support import job, listed, run_learning, small_tasks, stored
from tensorese.errors import TensoreseError
from tensorese.iterate.config import IterateError
from tensorese.iterate.folder import STORE, IterationFolder
from tensorese.iterate.learner import LearningProcess
from tensorese.iterate.rounds import Rounds
from tensorese.iterate.session import open_folder
from tensorese.models.base import load_model
from tensorese.records.nouns import Measurement
from tensorese.records.store import Store
from tensorese.space.space import task_space
from tuning_support import TARGET

pytestmark = pytest.mark.tvm

DRIVER = Path(__file__).with_name("driver_learning_rounds.py")


@pytest.fixture(scope="module")
def known() -> list[Measurement]:
    return stored()


@pytest.fixture(scope="module")
def whole(known: list[Measurement], tmp_path_factory: pytest.TempPathFactory) -> Rounds:
    return run_learning(tmp_path_factory.mktemp("learning") / "run", known, secs=0.08)


def written(out: Path) -> list[Any]:
    batches = [json.loads(path.read_text()) for path in sorted((out / "batches").iterdir())]
    return [{**batch, "span": None} for batch in batches]


def test_programs_are_legal_new_and_as_many_as_asked_for(whole: Rounds) -> None:
    spaces = {task.workload.id: task_space(task.module, TARGET) for task in small_tasks()}
    seen: set[tuple[str, str, tuple[int, ...]]] = set()
    for batch in whole.folder.batches(4):
        assert len(batch) == 12
        for task, rows in batch.rows:
            sketches = {s.sketch.id: i for i, s in enumerate(spaces[task].sketches)}
            for row in rows:
                assert spaces[task].is_legal(sketches[row.sketch], row.row)
                seen.add((task, row.sketch, row.row))
    assert len(seen) == 4 * 12
    with Store.open(whole.folder.path / STORE) as store:
        assert store.table(["id"]).num_rows == 4 * 12


def test_learning_and_measuring_overlap(whole: Rounds) -> None:
    """Each batch but the first is learnt for and written while the one before is measured."""
    lines = whole.folder.rounds
    assert [line["learnt"] for line in lines] == [0, 0, 1, 2]
    for before, line in itertools.pairwise(lines):
        measuring, writing = before["measured"], line["written"]
        assert max(measuring[0], writing[0]) < min(measuring[1], writing[1])


def test_models_differ_and_the_last_one_is_ready_for_tune(whole: Rounds) -> None:
    models = [batch.model for batch in whole.folder.batches(4)]
    assert models[0] == models[1] and len(set(models[1:])) == 3
    final = load_model(whole.folder.path / "model")
    assert final.hash not in models and final.card.metrics["rounds"] == 4
    assert set(final.card.training_workloads) == {t.workload.id for t in small_tasks()}
    from tensorese.search.proposers.by_name import proposer_named
    from tensorese.search.rankers.online import OnlineRanker

    proposer = proposer_named(f"tlm:{whole.folder.path / 'model'}", OnlineRanker(), 0)
    assert final.hash in proposer.origin  # type: ignore[attr-defined]


@pytest.mark.slow
def test_without_a_valid_measurement_the_base_stays(
    known: list[Measurement], tmp_path: Path
) -> None:
    import dataclasses

    from tensorese.records.nouns import Status

    failing = [dataclasses.replace(m, status=Status.BUILD_ERROR, run_secs=()) for m in known]
    config = dataclasses.replace(job(tmp_path / "run").config, rounds=3)
    rounds = run_learning(tmp_path / "run", failing, config=config)
    models = {batch.model for batch in rounds.folder.batches(3)}
    assert models == {load_model(tmp_path / "run" / "model").hash}
    assert [p.name for p in (tmp_path / "run" / "models").iterdir()] == ["base"]


@pytest.mark.slow
def test_a_first_model_is_trained_from_data(known: list[Measurement], tmp_path: Path) -> None:
    import dataclasses

    with Store.open(tmp_path / "data", create=True) as store:
        store.ingest(known[::10])
    config = dataclasses.replace(job(tmp_path / "run").config, rounds=1, per_task=2)
    quick = {"steps": "1", "tasks": "2", "rows": "2", "pretrain": "1"}
    changed = {"model": "auto", "data": [tmp_path / "data"], "settings": quick, "config": config}
    rounds = run_learning(tmp_path / "run", known, **changed)
    assert rounds.folder.head["model"] == "trained from --data"
    measured = {m.program.id for m in known[::10]}
    (batch,) = rounds.folder.batches(1)
    ids = {program.id for program, _ in batch.programs(rounds.workloads)}
    assert len(ids) == 4 and not ids & measured, "what --data has measured is not written again"


def test_a_model_that_cannot_be_is_refused_before_anything_is_begun(tmp_path: Path) -> None:
    wanted = job(tmp_path / "run")
    config = Path(wanted.model) / "config.json"
    whole = json.loads(config.read_text())
    other_words = {**whole, "features": {**whole["features"], "version": "0ld"}}
    section = {**whole["section"], "network": {**whole["section"]["network"], "width": 32}}
    for damaged, said in (
        (other_words, "was trained with.*train it again"),
        ({**whole, "section": section}, "must describe one model"),
    ):
        config.write_text(json.dumps(damaged))
        with pytest.raises(TensoreseError, match=said):
            open_folder(wanted, listed(small_tasks()))
    assert not (tmp_path / "run").exists()


def test_the_process_stands_still_when_told_and_its_death_is_told(tmp_path: Path) -> None:
    learner = LearningProcess(tmp_path, "cpu", [0])
    try:
        learner.pause(True)
        assert _becomes(learner, stopped=True)
        learner.pause(False)
        assert _becomes(learner, stopped=False)
        learner._process.kill()
        with pytest.raises(IterateError, match=r"ended with exit code -9; .*learn.log says why"):
            learner.poll(10)
    finally:
        learner.close()


def _becomes(learner: LearningProcess, *, stopped: bool) -> bool:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        stat = Path(f"/proc/{learner._process.pid}/stat").read_text()
        if (stat.rpartition(")")[2].split()[0] == "T") == stopped:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.slow
def test_killed_at_random_moments_it_learns_and_writes_the_same(
    known: list[Measurement], whole: Rounds, tmp_path: Path
) -> None:
    """kill -9 while it measures, learns and writes; the learning process dies with it."""
    mark = f"TENSORESE_TEST_MARK={tmp_path}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    environment |= {"TENSORESE_TEST_MARK": str(tmp_path)}
    seeded = random.Random(3)
    for kill in range(5):
        process = subprocess.Popen(
            [sys.executable, str(DRIVER), str(tmp_path / "run")], env=environment
        )
        until = time.monotonic() + 60
        while time.monotonic() < until and len(list(tmp_path.glob("run/batches/0*"))) < min(
            kill, 3
        ):
            time.sleep(0.01)
        time.sleep(4 * seeded.random())
        process.kill()
        assert process.wait() == -9, "the driver must be slow enough to be killed"
        time.sleep(0.5)
        assert not _marked(mark), "the learning process must not be left over"
    subprocess.run(
        [sys.executable, str(DRIVER), str(tmp_path / "run")], env=environment, check=True
    )
    assert written(tmp_path / "run") == written(whole.folder.path)
    with Store.open(tmp_path / "run" / STORE) as store:
        counts = Counter(store.table(["program_id"])["program_id"].to_pylist())
    assert set(counts.values()) == {1} and len(counts) == 4 * 12
    bests = [
        IterationFolder.read(path).rounds[-1]["best"]
        for path in (tmp_path / "run", whole.folder.path)
    ]
    assert bests[0] == bests[1]


def _marked(mark: str) -> list[str]:
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in environ.read_bytes():
                found.append(environ.parent.name)
        except OSError:
            continue
    return found
