"""`train ensemble`: networks and trees that vote, and what ships."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cpu_records_support import cpu_measurements
from tensorese.features.programs import DataError, read_programs
from tensorese.models.base import load_model
from tensorese.models.ensemble import Ensemble
from tensorese.models.physics_net import PhysicsNet
from tensorese.models.trees import Trees
from tensorese.training.recipes import ensemble as recipes
from tensorese.training.recipes.base import (
    DataSelection,
    Outcome,
    Recipe,
    apply_settings,
    make_sides,
    train_model,
)
from tensorese.training.recipes.ensemble import EnsembleRecipe
from training_support import NEW, OLD, cpu_store, pairs_in_order

pytestmark = pytest.mark.null

QUICK = {"networks": "2", "width": "32", "steps": "60", "rows": "256", "lr": "3e-3"}
QUICK |= {"trees": "20", "min_data_in_leaf": "5", "votes": "3"}


def _recipe(preset: str, *platforms: str) -> Recipe:
    named = EnsembleRecipe.named("ensemble", preset, DataSelection(platforms=platforms))
    return apply_settings(named, QUICK)


def _parts(outcome: Outcome) -> tuple[Ensemble, PhysicsNet, Trees]:
    model = load_model(outcome.folder)
    assert isinstance(model, Ensemble)
    networks, trees = (member.model for member in model.members)
    assert isinstance(networks, PhysicsNet) and isinstance(trees, Trees)
    return model, networks, trees


def test_networks_and_trees_rank_unseen_tasks(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    with cpu_store(tmp_path / "store") as store:
        outcome = train_model(_recipe("default", OLD), [store], tmp_path / "model")
        programs = read_programs([store], platforms=(OLD,))
    model, networks, trees = _parts(outcome)
    assert model.platforms == networks.platforms == trees.platforms == (OLD,)
    assert len(trees.forests[OLD].roots) == 2 * 20  # on two scales
    assert model.opinions(model.read_all(programs), OLD).shape == (len(programs), 2 + 3)
    held_out = make_sides(programs, DataSelection()).held_out
    assert not {programs.tasks[k] for k in held_out} & set(model.card.training_workloads)
    for part in (model, networks, trees):
        assert pairs_in_order(part, programs, OLD, held_out) > 0.65
    assert outcome.notes == ()


def test_several_platforms_share_trunk_and_trees(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    with cpu_store(tmp_path / "store") as store:
        outcome = train_model(_recipe("default"), [store], tmp_path / "model")
        programs = read_programs([store])
    model, networks, trees = _parts(outcome)
    assert set(model.platforms) == set(networks.platforms) == set(trees.platforms) == {OLD, NEW}
    tasks = range(len(programs.tasks))
    own = pairs_in_order(model, programs, NEW, tasks)
    assert own > pairs_in_order(model, programs, OLD, tasks, label=NEW)


def test_what_ships_learns_from_the_others_and_keeps_one_head(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    other = "pond-4c"
    with cpu_store(tmp_path / "store", tasks=6) as store:
        # Tasks that only another platform has measured, and a test task nobody may learn from.
        store.ingest(cpu_measurements((other,), tasks=12, seed=1))
        store.ingest(cpu_measurements((other, NEW), tasks=1, split="test", seed=2))
        outcome = train_model(_recipe("ship", NEW), [store], tmp_path / "model")
        mine = read_programs([store], platforms=(NEW,))
        everything = read_programs([store])
        test = read_programs([store], split="test")
    model, networks, trees = _parts(outcome)
    assert model.platforms == networks.platforms == trees.platforms == (NEW,)
    (note,) = outcome.notes
    assert note == f"also learnt from {OLD}, {other}"
    # Its own trees, and as many that all platforms share.
    assert len(trees.forests[NEW].roots) == 2 * 2 * 20
    seen = set(model.card.training_workloads)
    assert seen == set(everything.tasks) > set(mine.tasks)
    assert not seen & set(test.tasks)
    assert model.card.data_hash == everything.digest != mine.digest
    assert model.card.split == "none held out" and set(model.card.targets) == {NEW}
    assert pairs_in_order(model, mine, NEW, range(6)) > 0.75
    assert pairs_in_order(model, test, NEW, range(1)) > 0.6


def test_the_default_learns_from_its_own_platform_alone(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    few = {"steps": "4", "trees": "3"}
    scores = []
    for k, platforms in enumerate([(OLD,), (OLD, NEW)]):
        with cpu_store(tmp_path / f"store{k}", (OLD,)) as store:
            if NEW in platforms:
                store.ingest(cpu_measurements((NEW,), seed=1))
            recipe = apply_settings(_recipe("default", OLD), few)
            model, _, _ = _parts(train_model(recipe, [store], tmp_path / str(k)))
            programs = read_programs([store], platforms=(OLD,))
            scores.append(model.rank(model.read_all(programs), OLD))
    np.testing.assert_array_equal(scores[0], scores[1])


def test_without_lightgbm_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "can_grow", lambda: False)
    with (
        cpu_store(tmp_path / "store", (OLD,), tasks=4) as store,
        pytest.raises(DataError, match=r"LightGBM, which is not installed; pip install .* physics"),
    ):
        train_model(_recipe("default"), [store], tmp_path / "model")


def test_a_gpu_has_defaults_of_its_own() -> None:
    recipe = EnsembleRecipe()
    assert recipe.for_machine("cpu") == recipe
    gpu = recipe.for_machine("cuda")
    assert (gpu.fit.loss, gpu.fit.octaves, gpu.fit.centred) == ("none", 0.0, 100.0)
    assert gpu.grow.votes == 32 and gpu.fit.width == recipe.fit.width


def test_what_is_set_stays_set_on_a_gpu() -> None:
    recipe = EnsembleRecipe(fit=replace(EnsembleRecipe().fit, steps=9, octaves=5.0))
    fit = recipe.for_machine("cuda").fit
    assert (fit.steps, fit.octaves) == (9, 5.0)
    assert (fit.loss, fit.centred) == ("none", 100.0)
    votes = EnsembleRecipe(grow=replace(EnsembleRecipe().grow, votes=4))
    assert votes.for_machine("cuda").grow.votes == 4
