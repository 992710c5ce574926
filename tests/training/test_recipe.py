from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from tensorese.training.recipe import Recipe, apply_settings, build_model, make_sides, settled

from tensorese.features.programs import DataError, ProgramSet
from tensorese.training import recipe as recipes

pytestmark = pytest.mark.null


def test_settings_reach_their_config() -> None:
    text = {"width": "64", "epochs": "3", "size": "32", "loss": "rank", "bf16": "false"}
    recipe = apply_settings(Recipe(), text)
    assert recipe.trunk.width == 64
    assert recipe.train.epochs == 3 and recipe.train.loss == "rank"
    assert recipe.train.groups.size == 32 and recipe.train.bf16 is False


def test_a_choice_that_does_not_exist_is_refused() -> None:
    """A loss that nobody knows would train on what is left of the losses, and say nothing."""
    wanted = "takes one of rank, mse, both, none, but got 'mes' .did you mean 'mse'"
    with pytest.raises(DataError, match=wanted):
        apply_settings(Recipe(), {"loss": "mes"})
    with pytest.raises(DataError, match="backbone takes one of attention, lstm"):
        apply_settings(Recipe(), {"backbone": "gru"})


def test_sides_are_disjoint_and_complete(toy: ProgramSet) -> None:
    sides = make_sides(toy, Recipe(fold=1))
    together = [*sides.train, *sides.validation, *sides.held_out]
    assert sorted(together) == list(range(len(toy.tasks)))
    assert sides.held_out and sides.train


def test_fold_minus_one_holds_nothing_out(toy: ProgramSet) -> None:
    assert make_sides(toy, Recipe(fold=-1)).held_out == ()


def test_a_task_without_valid_records_is_on_no_side(toy: ProgramSet) -> None:
    latency = toy.latency.copy()
    latency[toy.task == 2] = np.nan
    sides = make_sides(replace(toy, latency=latency), Recipe())
    assert 2 not in {*sides.train, *sides.validation, *sides.held_out}


def test_all_failed_is_refused(toy: ProgramSet) -> None:
    latency = np.full_like(toy.latency, np.nan)
    with pytest.raises(DataError, match="records failed"):
        make_sides(replace(toy, latency=latency), Recipe())


def test_paper_preset_knows_a_cpu(toy: ProgramSet) -> None:
    model = build_model(Recipe(kind="mtl-tlp", preset="paper"), toy)
    assert (model.config.spec.length, model.config.spec.numbers) == (25, 11)


def test_a_network_is_held_out_wherever_it_occurs(toy: ProgramSet) -> None:
    networks = {"one": toy.tasks[:2], "other": toy.tasks[1:3]}
    recipe = Recipe(split="by-network", networks=networks, held_out="one")
    assert make_sides(toy, recipe).held_out == (0, 1)


def test_records_that_name_no_network(toy: ProgramSet) -> None:
    with pytest.raises(DataError, match="do not say; give --networks"):
        make_sides(toy, Recipe(split="by-network"))
    with pytest.raises(DataError, match="did you mean 'one'"):
        make_sides(toy, Recipe(split="by-network", networks={"one": toy.tasks[:1]}, held_out="on"))


def test_defaults_are_the_frozen_configuration() -> None:
    """What `tensorese train` does is what the final table was made with."""
    path = Path(__file__).parents[2] / "benchmarks" / "tlp_frozen.json"
    frozen = json.loads(path.read_text())["settings"]
    recipe = Recipe()
    trunk, train = asdict(recipe.trunk), asdict(recipe.train)
    assert {k: trunk[k] for k in frozen["trunk"]} == frozen["trunk"]
    assert {k: train[k] for k in frozen["train"]} == frozen["train"]
    assert {k: train["groups"][k] for k in frozen["groups"]} == frozen["groups"]
    for name in ("members", "physics_members", "trees", "tree_votes", "doubt", "jitter"):
        assert getattr(recipe, name) == frozen[name], name


def test_without_lightgbm_networks_take_the_trees_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "can_grow", lambda: False)
    changed, remark = settled(Recipe())
    assert (changed.trees, changed.physics_members) == (0, 4)
    assert "LightGBM, which is not installed" in remark and "--set trees=0" in remark
    same, nothing = settled(Recipe(trees=0))
    assert (same.physics_members, nothing) == (0, "")
    paper, nothing = settled(Recipe(preset="paper"))
    assert (paper.trees, paper.physics_members, nothing) == (0, 0, "")
