"""`benchmarks/tlp_meant.py`: rows of a made-up store, in turn and side by side."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cpu_records_support import cpu_measurements
from tensorese.features.sentences import sentences_of
from tensorese.training.groups import GroupConfig
from tensorese.training.labels import only
from training_support import NEW, OLD, cpu_store

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import tlp_meant
import tlp_meant_report
import tlp_meant_runs
from tlp_meant_mtl import few_labels, helper_sets, with_helpers
from tlp_meant_runs import Data, Run, System, Trained, pre_train, rows_of, train
from tlp_meant_session import Rows
from tlp_meant_trunk import language_model, standard, states_of

pytestmark = pytest.mark.null

SMALL = {"width": 16, "heads": 2}
LANGUAGE = System(name="language", config=SMALL, fit={"epochs": 3, "lr": 3e-3})
MIXED = GroupConfig(size=64, per_batch=1, balance=0.0, by_task=False)
PAPER = System(name="published", paper=True, fit={"epochs": 2, "groups": MIXED}, crop="whole")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    folder = tmp_path_factory.mktemp("root")
    with cpu_store(folder / "data" / "cpu") as store:
        store.ingest(cpu_measurements((OLD, NEW), split="test", tasks=4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tlp_meant_runs, "ROOT", folder)
        return Data("cpu", "cpu")


def _run(data: Data, platform: str, seed: int = 0, **more: Any) -> Run:
    key = {"stage": "single", "system": "language", "seed": seed}
    labels = only(data.programs, platform)
    return Run(key=key, labels=labels, tasks=data.train, judged=(platform,), seed=seed, **more)


@pytest.mark.parametrize("system", [LANGUAGE, PAPER], ids=lambda system: system.name)
def test_side_by_side_or_in_turn(data: Data, system: System) -> None:
    """Two platforms and seeds become two rows, of unlike networks."""
    runs = [_run(data, OLD), _run(data, NEW, seed=1)]
    in_turn = train(data, system, runs)
    recipe = system.recipe()
    fit = recipe.fit
    stacked = [Trained(run=one.run, config=one.config, keep_best=False) for one in in_turn]
    tlp_meant_runs._side_by_side(data, fit, stacked)
    if system is PAPER:  # nothing is cropped, and little is padding
        rows_read = in_turn[0].config.spec.length
        assert rows_read == max(len(pair.bones.rows) for pair in data.programs.pairs)
    for trained in (in_turn, stacked):
        rows = list(rows_of(data, trained, test=True))
        assert [row["platform"] for row in rows] == [OLD, NEW]
        for row in rows:
            assert row["tasks"] == 4 and len(row["ratios"]) == 4
            assert [point[0] for point in row["curve"]] == list(range(1, fit.epochs + 1))
            assert 0 < row["validation"]["top1"] <= row["validation"]["top5"] <= 1
        assert rows[0]["ratios"] != rows[1]["ratios"]
    if system is PAPER:  # nothing random in it: the same weights either way
        for one, two in zip(in_turn, stacked, strict=True):
            for name, tensor in one.weights.items():
                if not one.keep_best or one.best[1] == fit.epochs:
                    np.testing.assert_allclose(tensor, two.weights[name], rtol=1e-2, atol=1e-3)


def test_the_best_epoch_is_kept_where_a_system_says_so(data: Data) -> None:
    one = Trained(run=_run(data, OLD), config=LANGUAGE.recipe().config, keep_best=True)
    last = replace(one, keep_best=False, curve=[])
    for epoch, top1 in ((1, 0.5), (2, 0.9), (3, 0.7)):
        for trained in (one, last):
            trained.add({"epoch": epoch, "top1": top1, "top5": 1.0}, {})
    assert one.best == (0.9, 2) and last.best == (0.7, 3)


def test_steps_do_not_depend_on_the_number_of_labels(data: Data) -> None:
    steps = replace(LANGUAGE, steps=24)
    few = few_labels(data, NEW, 30, seed=0)
    labels = with_helpers(data.programs, NEW, few, (OLD,))
    run = replace(_run(data, NEW), labels=with_helpers(data.programs, NEW, few, ()))
    [alone], [helped] = (train(data, steps, [replace(run, labels=x)]) for x in (run.labels, labels))
    assert alone.curve[-1]["epoch"] > helped.curve[-1]["epoch"] >= 1


def test_few_labels_are_of_few_tasks(data: Data) -> None:
    few = few_labels(data, NEW, 30, seed=0)
    assert len(set(few.tolist())) == 30
    tasks = data.programs.task[few]
    assert set(tasks.tolist()) <= set(data.train) and len(set(tasks.tolist())) == 2
    labels = with_helpers(data.programs, NEW, few, ())
    old, new = (labels.head(name) for name in (OLD, NEW))
    assert sorted(labels.valid(new)) == sorted(few) and not len(labels.valid(old))
    helped = with_helpers(data.programs, NEW, few, (OLD,))
    assert len(helped.valid(old)) == len(data.programs.valid(old)) > 30 == len(helped.valid(new))
    assert set(few_labels(data, NEW, 30, seed=1).tolist()) != set(few.tolist())


def test_a_pre_trained_trunk_is_where_training_starts(data: Data) -> None:
    config = LANGUAGE.recipe().config_for(data.programs)
    start = pre_train(data, config, 0, 3)
    assert start is pre_train(data, config, 0, 3)  # once for all runs of a seed
    run = _run(data, OLD, start=start)
    network = tlp_meant_runs._built(config, run).state_dict()
    fresh = tlp_meant_runs._built(config, _run(data, OLD)).state_dict()
    moved = [name for name in fresh if not bool((network[name] == fresh[name]).all())]
    assert moved and not any(".heads." in name for name in moved)


def test_every_target_has_helpers_of_both_makers() -> None:
    for target in tlp_meant_report.CPUS:
        sets = helper_sets(target)
        assert {len(one) for one in sets} == {0, 1, 2, 3, 4} and len(set(sets)) == len(sets)
        assert not any(target in one for one in sets) and sum(len(one) == 1 for one in sets) == 4


def test_twelve_configurations_at_most() -> None:
    names = [system.name for system in (*tlp_meant.ALONE, *tlp_meant.TOGETHER)]
    assert len(set(names)) == len(names) <= 12


def test_rows_are_not_trained_again(data: Data, tmp_path: Path) -> None:
    rows = Rows(tmp_path / "rows.jsonl")
    run = _run(data, OLD)
    assert rows.missing(run)
    rows.add({**run.key, "platform": OLD})
    assert not rows.missing(run) and not Rows(tmp_path / "rows.jsonl").missing(run)
    assert rows.missing(_run(data, NEW)) and rows.missing(_run(data, OLD, seed=1))
    few = replace(run, key={**run.key, "labels": 500})
    assert rows.missing(few)


def test_what_hurts_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    def row(top1: float) -> list[dict[str, Any]]:
        return [{"ratios": {f"task{k}": [top1 + 0.001 * k, 1.0, 0.5] for k in range(9)}}]

    systems = {"alone": row(0.5), "+ a": row(0.8), "+ a, b": row(0.6), "+ b": row(0.5)}
    tlp_meant_report.print_negative(systems)
    said = capsys.readouterr().out
    assert said.startswith("negative transfer: b added to + a: -0.200") and said.count("added") == 1


def test_states_of_a_language_model_know_every_answer(data: Data) -> None:
    """The last one too, of which no question is asked any more; programs differ, prompts too."""
    tasks = data.train[:4]
    model = language_model(data.programs, data.targets, tasks, 2, "cpu", "tiny")
    sentences = sentences_of(data.programs)
    old, new = (states_of(model, sentences, data.targets[name]) for name in (OLD, NEW))
    assert old.shape == (len(data.programs), 3 * model.config.width)
    assert np.abs(old - new).max() > 1e-3
    index = data.programs.members[0]
    decisions = np.concatenate(data.programs.decisions[:1])
    assert len(np.unique(old[index].round(5), axis=0)) == len(np.unique(decisions, axis=0))
    known, other = standard(old, new)
    assert np.abs(known.values.mean(0)).max() < 1e-3 and known.values.shape == other.values.shape
