"""`train physics`: in seconds to a folder that ranks unseen tasks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensorese.features.programs import read_programs
from tensorese.models.base import load_model
from tensorese.models.physics_net import PhysicsNet
from tensorese.training.recipes.base import DataSelection, apply_settings, make_sides, train_model
from tensorese.training.recipes.physics import PhysicsRecipe
from training_support import NEW, OLD, cpu_store, pairs_in_order

pytestmark = pytest.mark.null

QUICK = {"networks": "2", "width": "32", "steps": "80", "rows": "256", "lr": "3e-3"}


def test_one_trunk_and_a_head_for_every_platform(tmp_path: Path) -> None:
    recipe = apply_settings(PhysicsRecipe.named("physics", "default", DataSelection()), QUICK)
    with cpu_store(tmp_path / "store") as store:
        outcome = train_model(recipe, [store], tmp_path / "model")
        programs = read_programs([store])
    model = load_model(outcome.folder)
    assert isinstance(model, PhysicsNet)
    assert (model.config.networks, model.config.width) == (2, 32)
    assert set(model.platforms) == {OLD, NEW}
    held_out = make_sides(programs, DataSelection()).held_out
    for platform in model.platforms:
        assert pairs_in_order(model, programs, platform, held_out) > 0.65
        better = outcome.metrics[f"{platform} held-out top1"]
        assert better > outcome.metrics[f"{platform} held-out random_top1"]


def test_the_seed_is_part_of_the_recipe(tmp_path: Path) -> None:
    few = {**QUICK, "steps": "4"}
    scores = []
    with cpu_store(tmp_path / "store", (OLD,)) as store:
        programs = read_programs([store])
        for k, seed in enumerate(["0", "0", "1"]):
            recipe = apply_settings(PhysicsRecipe(), {**few, "seed": seed})
            model = load_model(train_model(recipe, [store], tmp_path / str(k)).folder)
            scores.append(model.rank(model.read_all(programs), OLD))
    np.testing.assert_array_equal(scores[0], scores[1])
    assert not np.allclose(scores[0], scores[2])
