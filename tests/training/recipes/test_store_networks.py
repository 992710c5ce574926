"""`train tenset-mlp` and its like, on made-up rows: what the recipe does, for every kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lowered_support import with_made_up
from tensorese.features.programs import DataError, ProgramSet
from tensorese.models.base import Card, load_model, save_model
from tensorese.models.store_network import StoreModel
from tensorese.training.recipes import recipe_class, trainable
from tensorese.training.recipes.base import (
    DataSelection,
    Recipe,
    Trained,
    TrainingJob,
    apply_settings,
    make_sides,
)
from tensorese.training.recipes.store_networks import StoreNetworkRecipe
from training_support import NEW, OLD, Killed, cpu_programs, kill_after, pairs_in_order

pytestmark = pytest.mark.null

KINDS = [kind for kind in trainable() if recipe_class(kind) is StoreNetworkRecipe]
QUICK = {"epochs": "6", "size": "32", "lr": "3e-3"}


@pytest.fixture(scope="module")
def lowered(tmp_path_factory: pytest.TempPathFactory) -> ProgramSet:
    return with_made_up(cpu_programs(tmp_path_factory.mktemp("lakes")))


SMALL = {
    "atformer": {"width": "32", "heads": "2"},
    "mha": {"width": "32", "heads": "2", "epochs": "12"},
    "tabnet": {"width": "32", "decide": "8", "steps": "2", "momentum": "0.2", "epochs": "12"},
}
"""By kind, where the published sizes take long."""


def _recipe(kind: str, **settings: str) -> Recipe:
    recipe = recipe_class(kind).named(kind, "default", DataSelection())
    return apply_settings(recipe, {**QUICK, **SMALL.get(kind, {}), **settings})


def _job(programs: ProgramSet, checkpoint: Path | None = None) -> TrainingJob:
    sides = make_sides(programs, DataSelection())
    return TrainingJob(programs=programs, sides=sides, stores=(), checkpoint=checkpoint)


def _train(recipe: Recipe, programs: ProgramSet, checkpoint: Path | None = None) -> Trained:
    return recipe.train(_job(programs, checkpoint))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_learns_and_keeps_what_it_learnt(
    kind: str, lowered: ProgramSet, tmp_path: Path
) -> None:
    trained, held_out = _train(_recipe(kind), lowered), _job(lowered).sides.held_out
    model = trained.model
    assert isinstance(model, StoreModel) and model.kind == kind
    assert set(model.platforms) == {OLD, NEW}
    assert trained.metrics["steps"] > 0 and "have no rows" in trained.notes[0]
    for platform in model.platforms:
        assert pairs_in_order(model, lowered, platform, held_out) > 0.65
    save_model(tmp_path, model, Card())
    loaded = load_model(tmp_path)
    np.testing.assert_array_equal(
        loaded.rank(lowered.lowered, OLD), model.rank(lowered.lowered, OLD)
    )


@pytest.mark.parametrize("settings", [{"loss": "rmse"}, {"by_task": "false"}])
def test_the_other_loss_and_mixed_batches_learn_too(
    settings: dict[str, str], lowered: ProgramSet
) -> None:
    model = _train(_recipe("tenset-mlp", **settings), lowered).model
    assert pairs_in_order(model, lowered, OLD, _job(lowered).sides.held_out) > 0.65


@pytest.mark.parametrize("kind", ["tenset-mlp", "pacm"])  # the latter's norms keep statistics
def test_a_killed_run_goes_on_as_if_nothing_had_happened(
    kind: str, lowered: ProgramSet, tmp_path: Path
) -> None:
    recipe, checkpoint = _recipe(kind), tmp_path / "checkpoint.safetensors"
    whole = _train(recipe, lowered).model
    job = replace(_job(lowered, checkpoint), progress=kill_after(3))
    with pytest.raises(Killed):
        recipe.train(job)
    model = _train(recipe, lowered, checkpoint).model
    np.testing.assert_array_equal(
        model.rank(lowered.lowered, NEW), whole.rank(lowered.lowered, NEW)
    )


def test_seeds_differ_and_equal_ones_do_not(lowered: ProgramSet) -> None:
    few = {"epochs": "1"}
    scores = [
        _train(_recipe("tenset-mlp", seed=seed, **few), lowered).model.rank(lowered.lowered, OLD)
        for seed in ("0", "0", "1")
    ]
    np.testing.assert_array_equal(scores[0], scores[1])
    assert not np.allclose(scores[0], scores[2])


def test_patience_stops_on_validation_tasks_that_are_not_learnt(lowered: ProgramSet) -> None:
    entries: list[dict[str, Any]] = []
    job = replace(_job(lowered), progress=entries.append)
    _recipe("tenset-mlp", patience="1", epochs="30", lr="0.0").train(job)
    assert len(entries) == 2 and "top1" in entries[0]


def test_nothing_lowered_is_one_line(lowered: ProgramSet) -> None:
    assert lowered.lowered is not None
    none = replace(lowered.lowered, counts=np.zeros_like(lowered.lowered.counts))
    with pytest.raises(DataError, match=r"none of .* programs could be lowered"):
        _train(_recipe("tenset-mlp"), replace(lowered, lowered=none))
