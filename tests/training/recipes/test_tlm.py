"""`train tlm`: from measured programs to a model that writes faster ones than chance does."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from cpu_records_support import cpu_measurements, cpu_space, cpu_workload, seconds_of
from tensorese.arrays import Ints
from tensorese.features.programs import DataError, read_programs
from tensorese.features.sentences import grammar_of
from tensorese.language.sentence import UNKNOWN
from tensorese.models.base import load_model
from tensorese.models.tlm import FASTEST, TLM, Sampling
from tensorese.records.nouns import Workload
from tensorese.records.programs import UnmeasuredProgram
from tensorese.records.store import Store
from tensorese.space.decisions import DecisionSpace
from tensorese.space.decoding import Decoder, SketchDecoder
from tensorese.space.slots import Tile
from tensorese.training.recipes.base import DataSelection, apply_settings, train_model
from tensorese.training.recipes.tlm import TLMRecipe
from training_support import NEW, OLD, Killed, cpu_store, kill_after

pytestmark = pytest.mark.null

SMALL = {"heads": "2", "width": "32", "layers": "2", "bf16": "false"}
QUICK = {**SMALL, "pretrain": "0", "steps": "200", "tasks": "6", "rows": "12", "lr": "5e-3"}
UNSEEN = (64, 256, 256)


def trained(folder: Path, settings: dict[str, str]) -> TLM:
    recipe = apply_settings(TLMRecipe(selection=DataSelection(fold=-1)), settings)
    with cpu_store(folder / "store", (OLD,), per_task=48) as store:
        model = load_model(train_model(recipe, [store], folder / "model").folder)
    assert isinstance(model, TLM)
    return model


def written(model: TLM, workload: Workload, where: DecisionSpace, n: int = 128) -> Ints:
    row = np.array([[t for slot in where.slots if isinstance(slot, Tile) for t in slot.table[0]]])
    grammar = grammar_of(workload, where.sketch, [*row[0].tolist(), 0], model.atomic)
    decoder = Decoder([SketchDecoder(where, grammar, n)])
    model.write([model.prompt(grammar, OLD)], decoder, Sampling(), seed=1)
    return decoder.rows()[0]


def mean_log_seconds(rows: Ints) -> float:
    return float(np.mean([math.log(seconds_of(row, 0.0)) for row in rows.tolist()]))


@pytest.mark.parametrize(
    ("setting", "value"),
    [("stage", "speed"), ("stage", "best"), ("atomic", "true"), ("masked", "false")],
)
def test_what_it_writes_for_an_unseen_task_is_faster_than_chance(
    tmp_path: Path, setting: str, value: str
) -> None:
    model = trained(tmp_path, {**QUICK, setting: value})
    assert model.wish == (UNKNOWN if value == "best" else FASTEST)
    where = cpu_space(*UNSEEN)
    rows = written(model, cpu_workload(*UNSEEN), where)
    assert where.legal(rows).all()
    chance = where.sample(128, np.random.default_rng(0))
    assert mean_log_seconds(rows) < mean_log_seconds(chance) - 0.4


def test_a_wish_for_slow_programs_gets_slower_ones(tmp_path: Path) -> None:
    model = trained(tmp_path, QUICK)
    fast = written(model, cpu_workload(*UNSEEN), cpu_space(*UNSEEN))
    model.wish = 4
    slow = written(model, cpu_workload(*UNSEEN), cpu_space(*UNSEEN))
    assert mean_log_seconds(fast) < mean_log_seconds(slow) - 0.3


def test_preferences_part_fast_programs_from_slow_ones(tmp_path: Path) -> None:
    before = trained(tmp_path / "a", {**QUICK, "steps": "10"})
    pairs = {**QUICK, "steps": "10", "preference": "40", "preference_lr": "1e-3"}
    after = trained(tmp_path / "b", pairs)
    with Store.open(tmp_path / "a" / "store") as store:
        programs = read_programs([store])
    latency = programs.latency[:, 0]

    def margin(model: TLM) -> float:
        scores = model.rank(model.read_all(programs), OLD)
        mine = programs.task == 0
        return float(np.corrcoef(scores[mine], -np.log(latency[mine]))[0, 1])

    assert margin(after) > margin(before) + 0.05


def test_killed_and_resumed_it_is_the_same_model(tmp_path: Path) -> None:
    recipe = apply_settings(TLMRecipe(), {**QUICK, "steps": "220", "tasks": "2", "rows": "3"})
    with cpu_store(tmp_path / "store", (OLD, NEW)) as store:
        whole = load_model(train_model(recipe, [store], tmp_path / "whole").folder)
        with pytest.raises(Killed):
            train_model(recipe, [store], tmp_path / "cut", progress=kill_after(1))
        outcome = train_model(recipe, [store], tmp_path / "cut", resume=True)
        assert load_model(outcome.folder).hash == whole.hash
        assert {p.name for p in outcome.folder.iterdir()} == {
            p.name for p in whole_folder(tmp_path)
        }


def whole_folder(folder: Path) -> list[Path]:
    return list((folder / "whole").iterdir())


def test_scored_programs_teach_too_and_held_out_tasks_stay_out(tmp_path: Path) -> None:
    measurements = list(cpu_measurements((OLD,), per_task=6, seed=3))
    with Store.open(tmp_path / "corpus", create=True) as corpus:
        corpus.ingest(measurements)  # sketches and workloads
        corpus.add_programs(
            UnmeasuredProgram(program=m.program, origin=f"made@{OLD}", score=-float(k % 5))
            for k, m in enumerate(measurements)
        )
        recipe = apply_settings(TLMRecipe(), {**QUICK, "steps": "1"})
        with cpu_store(tmp_path / "store", (OLD,)) as store:
            alone = train_model(recipe, [store], tmp_path / "a")
            both = train_model(recipe, [store], tmp_path / "b", corpora=[corpus])
    counts = [int(o.notes[0].split()[0].replace(",", "")) for o in (alone, both)]
    held_out = load_model(both.folder).card.split
    assert "fold 0 held out" in held_out
    assert counts[0] < counts[1] < counts[0] + len(measurements)


@pytest.mark.parametrize("stage", ["pretrain", "preference"])
def test_a_stage_that_is_no_fine_tuning_is_refused(tmp_path: Path, stage: str) -> None:
    recipe = apply_settings(TLMRecipe(), {**QUICK, "stage": stage})
    with (
        cpu_store(tmp_path / "store", (OLD,)) as store,
        pytest.raises(DataError, match=f"one of speed, best, but got {stage}"),
    ):
        train_model(recipe, [store], tmp_path / "model")


def test_no_step_at_all_is_refused(tmp_path: Path) -> None:
    recipe = apply_settings(TLMRecipe(), {**QUICK, "steps": "0"})
    with (
        cpu_store(tmp_path / "store", (OLD,)) as store,
        pytest.raises(DataError, match="at least one step, but all stages have 0"),
    ):
        train_model(recipe, [store], tmp_path / "model")
