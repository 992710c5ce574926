"""A new head learns a machine that its trunk has not seen, and says by how much."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorese.evaluation.trees import tree_labels
from tensorese.models.disk import Card
from tensorese.models.folder import load_model, save_model

from cpu_records_support import cpu_measurements
from tensorese.evaluation.metrics import mean_top_k
from tensorese.evaluation.ranked import judge_scores
from tensorese.features.programs import ProgramSet, read_programs
from tensorese.models.tlp import TLP
from tensorese.models.trees import add_trees, from_lightgbm
from tensorese.onboard import adapt as adapting
from tensorese.onboard.adapt import FOLDS, OnboardError, adapt, labelled, start_from
from tensorese.records.store import Store
from tensorese.training.physics import (
    Run,
    SmallRecipe,
    SmallSet,
    _train_many,
    group_config,
    only,
    small_scores,
    small_set,
    to_standard,
    train_small,
)

pytestmark = pytest.mark.null

TINY = SmallRecipe(networks=2, steps=60, rows=256, lr=3e-3)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> SmallSet:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("toy")
    with Store.open(folder, create=True) as store:
        store.ingest(cpu_measurements(("lake-1c", "lake-2c")))
        return small_set(read_programs([store]))


@pytest.fixture(scope="module")
def nearest(given: SmallSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that knows `lake-1c` and a copy of it."""
    folder = tmp_path_factory.mktemp("nearest")
    twins = replace(
        only(given.programs, "lake-1c"),
        platforms=("lake-1c", "copy"),
        latency=given.programs.latency[:, [0, 0]],
        failed=given.programs.failed[:, [0, 0]],
    )
    tasks = tuple(range(len(given.programs.tasks)))
    model = train_small(given, [Run(programs=twins, tasks=tasks)], TINY)[0]
    save_model(folder, model, Card(training_workloads=given.programs.tasks))
    return folder


def _slow(given: SmallSet) -> SmallSet:
    return replace(given, programs=only(given.programs, "lake-2c"))


def test_it_starts_where_the_nearest_head_is(given: SmallSet, nearest: Path) -> None:
    old = load_model(nearest).model
    new = start_from(nearest, "copy", "lake-2c").eval()
    assert new.platforms == ("lake-2c",)
    np.testing.assert_allclose(
        small_scores(new, given, "lake-2c"), small_scores(old, given, "copy"), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("says", ["the truth", "the opposite"])
def test_the_nearest_trees_come_along_if_they_help(
    given: SmallSet, nearest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    monkeypatch.setattr(adapting, "VARIANTS", {"head": replace(TINY, steps=20)})
    monkeypatch.setattr(adapting, "can_grow", lambda: False)
    shutil.copytree(nearest, tmp_path / "model")
    programs = only(given.programs, "lake-2c")
    index, labels = tree_labels(programs, range(len(programs.tasks)))
    told = labels if says == "the truth" else 1 - labels
    settings = {"verbose": -1, "num_leaves": 63, "min_data_in_leaf": 2, "num_threads": 1}
    data = lightgbm.Dataset(given.features[index], told)
    forest = from_lightgbm(lightgbm.train(settings, data, 40))
    add_trees(tmp_path / "model", {"copy": forest}, 8)
    assert start_from(tmp_path / "model", "lake-1c", "lake-2c").trees is None
    started = start_from(tmp_path / "model", "copy", "lake-2c").trees
    assert started is not None and started.votes == 8 and set(started.forests) == {"lake-2c"}
    found = adapt(_slow(given), "lake-2c", tmp_path / "model", "copy")
    assert (found.model.trees is not None) == (says == "the truth")


def test_trees_of_the_new_labels_are_taken_where_they_rank_better(
    given: SmallSet, nearest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lightgbm")
    monkeypatch.setattr(adapting, "VARIANTS", {"head": replace(TINY, steps=20)})
    monkeypatch.setattr(adapting, "LEAST_LEAF", 2)
    tried = _noting(monkeypatch)
    found = adapt(_slow(given), "lake-2c", nearest, "lake-1c")
    assert [len(marks) for marks in tried.values()] == [1 * FOLDS, 2 * FOLDS]
    assert next(iter(tried)) == "none"  # this model came without any
    assert found.votes.whose == ("own" if found.model.trees is not None else "nearest")


def _noting(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[float]]:
    """How often, and how well, each number of trees was tried."""
    tried: dict[str, list[float]] = {}
    marks = adapting._marks

    def noted(given: SmallSet, platform: str, model: TLP, tasks: Sequence[int]) -> list[float]:
        found = marks(given, platform, model, tasks)
        whose = "none" if model.trees is None else str(len(model.trees.forests[platform].roots))
        tried.setdefault(whose, []).append(float(np.mean(found)))
        return found

    monkeypatch.setattr(adapting, "_marks", noted)
    return tried


def test_the_nearest_trees_are_corrected_where_that_ranks_better(
    given: SmallSet, nearest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lightgbm")
    monkeypatch.setattr(adapting, "VARIANTS", {"head": replace(TINY, steps=20)})
    monkeypatch.setattr(adapting, "LEAST_LEAF", 2)
    shutil.copytree(nearest, tmp_path / "model")
    tasks = range(len(given.programs.tasks))
    forest = adapting.grow(given, "lake-1c", tasks)["own"]
    add_trees(tmp_path / "model", {"lake-1c": forest}, 8)
    tried = _noting(monkeypatch)
    found = adapt(_slow(given), "lake-2c", tmp_path / "model", "lake-1c")
    count = len(forest.roots)  # its own are as many; corrected ones come on top
    taught = str(count + adapting.TREES)
    assert set(tried) == {"none", str(count), taught}
    assert len(tried[str(count)]) == 4 * FOLDS and len(tried[taught]) == 2 * FOLDS
    best = max(tried, key=lambda whose: max(tried[whose]))
    assert best != "none" and found.model.trees is not None


def test_without_lightgbm_no_tree_is_grown(
    given: SmallSet, nearest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapting, "VARIANTS", {"head": replace(TINY, steps=20)})
    monkeypatch.setattr(adapting, "can_grow", lambda: False)
    found = adapt(_slow(given), "lake-2c", nearest, "lake-1c")
    assert found.model.trees is None
    assert str(found.votes) == "no trees"


def test_standard_features_and_back(given: SmallSet, nearest: Path) -> None:
    """The first layer takes over the scaling: the function stays what it was."""
    model = load_model(nearest).model
    plain = small_scores(model, given, "lake-1c")
    inside = to_standard(model, given)
    white = replace(given, encoded=given.standard)
    np.testing.assert_allclose(small_scores(inside, white, "lake-1c"), plain, atol=2e-4)
    again = to_standard(inside, given, back=True)
    np.testing.assert_allclose(small_scores(again, given, "lake-1c"), plain, atol=2e-4)


def test_training_ranks_what_it_was_trained_on(given: SmallSet, nearest: Path) -> None:
    model = load_model(nearest).model
    tasks = range(len(given.programs.tasks))
    results = judge_scores(given.programs, "lake-1c", small_scores(model, given, "lake-1c"), tasks)
    assert np.mean([r.pairwise for r in results]) > 0.75


def test_adapting_reports_held_out_tasks(
    given: SmallSet, nearest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapting, "VARIANTS", {"head": TINY, "all": TINY})
    found = adapt(_slow(given), "lake-2c", nearest, "lake-1c")
    assert found.model.platforms == ("lake-2c",) and found.variant in ("head", "all")
    assert found.gain.tasks == 3
    assert 0 < found.gain.before[1] <= 1 and 0 < found.gain.after[1] <= 1
    assert "3 held-out tasks" in found.gain.lines()[0]
    scores = small_scores(found.model, given, "lake-2c")
    mine = judge_scores(given.programs, "lake-2c", scores, range(12))
    theirs = judge_scores(
        given.programs, "lake-2c", small_scores(_start(nearest), given, "lake-2c"), range(12)
    )
    assert np.mean([r.pairwise for r in mine]) > np.mean([r.pairwise for r in theirs])
    assert mean_top_k(mine, 1) > 0.5


def _start(nearest: Path) -> TLP:
    return start_from(nearest, "lake-1c", "lake-2c").eval()


def test_a_frozen_trunk_stays(given: SmallSet, nearest: Path) -> None:
    new = adapting._fit(_slow(given), "lake-2c", nearest, "lake-1c", range(12), "head", 0, True)
    old = start_from(nearest, "lake-1c", "lake-2c")
    for name, tensor in new.state_dict().items():
        same = torch.equal(tensor, old.state_dict()[name])
        assert same == ("heads" not in name), name
    assert all(parameter.requires_grad for parameter in new.parameters())


def test_too_few_tasks_are_refused(given: SmallSet, nearest: Path) -> None:
    programs = _slow(given).programs
    few = _cut(programs, 5)
    assert len(labelled(few, "lake-2c")) == 5
    with pytest.raises(OnboardError, match="at least 8 tasks, but only 5"):
        adapt(replace(given, programs=few), "lake-2c", nearest, "lake-1c")


def _cut(programs: ProgramSet, tasks: int) -> ProgramSet:
    latency = programs.latency.copy()
    latency[programs.task >= tasks] = np.nan
    return replace(programs, latency=latency)


def test_runs_side_by_side_learn_too(given: SmallSet) -> None:
    """As on a GPU: several seeds as one batch of models."""
    tasks = tuple(range(len(given.programs.tasks)))
    runs = [Run(programs=only(given.programs, "lake-1c"), tasks=tasks, seed=k) for k in range(2)]
    models = _train_many(given, runs, replace(TINY, steps=30), "cpu")
    scores = [small_scores(model, given, "lake-1c") for model in models]
    assert not np.allclose(scores[0], scores[1])
    for one in scores:
        results = judge_scores(given.programs, "lake-1c", one, tasks)
        assert np.mean([r.pairwise for r in results]) > 0.6


def test_groups_are_as_long_as_tasks(given: SmallSet) -> None:
    run = Run(programs=given.programs, tasks=tuple(range(12)))
    config = group_config([run], SmallRecipe(rows=512))
    assert (config.size, config.per_batch) == (32, 16)  # 24 programs a task
