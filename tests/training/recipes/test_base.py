"""Which tasks are learnt from, which settings are taken, what a trained model's card says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tensorese.features.programs import DataError, ProgramSet, read_programs
from tensorese.models.base import CARD, load_model
from tensorese.models.catalog import choose
from tensorese.records.nouns import Platform
from tensorese.training.recipes import presets, recipe_class, trainable
from tensorese.training.recipes.base import (
    CHECKPOINT,
    DataSelection,
    apply_settings,
    make_sides,
    train_model,
)
from tensorese.training.recipes.ensemble import EnsembleRecipe
from tensorese.training.recipes.physics import PhysicsRecipe
from tensorese.training.recipes.tlp import TLPRecipe
from training_support import NEW, OLD, Killed, cpu_store, kill_after

pytestmark = pytest.mark.null

QUICK = {"networks": "2", "width": "16", "steps": "40", "rows": "256"}


def test_every_trainable_kind_has_a_recipe() -> None:
    for kind in trainable():
        for preset in presets(kind):
            recipe = recipe_class(kind).named(kind, preset, DataSelection(fold=2))
            assert getattr(recipe, "kind", kind) == kind
            assert recipe.selection.fold == (-1 if preset == "ship" else 2)


def test_settings_reach_their_config() -> None:
    text = {"width": "32", "epochs": "3", "size": "32", "loss": "rank", "bf16": "false"}
    recipe = apply_settings(TLPRecipe(), {**text, "seed": "5", "transfer": "false"})
    assert isinstance(recipe, TLPRecipe)
    assert recipe.config.width == 32 and recipe.seed == 5 and recipe.transfer is False
    assert recipe.fit.epochs == 3 and recipe.fit.loss == "rank" and recipe.fit.bf16 is False
    assert recipe.fit.groups.size == 32 and recipe.fit.seed == 0
    both = apply_settings(EnsembleRecipe(), {"trees": "7", "steps": "9"})
    assert isinstance(both, EnsembleRecipe)
    assert (both.grow.trees, both.fit.steps) == (7, 9)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        # A loss that nobody knows would train on what is left of the losses, and say nothing.
        ({"loss": "mes"}, "takes one of rank, mse, both, none, but got 'mes' .did you mean 'mse'"),
        ({"widht": "3"}, "takes a known setting, but got 'widht' .did you mean 'width'"),
        ({"epochs": "many"}, "takes a int, but got 'many'; its default is 16"),
        ({"heads": "3"}, "heads=3 cannot be: width must be a multiple of heads"),
        ({"features": "all"}, "features takes one of language, both, but got 'all'"),
        ({"kind": "mtl-tlp"}, "takes a known setting, but got 'kind'"),
        ({"trees": "3"}, "takes a known setting, but got 'trees'"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, str], says: str) -> None:
    with pytest.raises(DataError, match=says):
        apply_settings(TLPRecipe(), settings)


@pytest.mark.parametrize(
    ("preset", "settings", "says"),
    [
        ("paper", {"width": "512"}, "--set width has no effect here: the preset paper is"),
        ("paper", {"features": "both"}, "--set features has no effect here: the preset paper is"),
        ("default", {"knots": "3"}, "--set knots has no effect here: it needs --features both"),
    ],
)
def test_settings_without_effect_are_refused(
    preset: str, settings: dict[str, str], says: str
) -> None:
    recipe = TLPRecipe.named("tlp", preset, DataSelection())
    with pytest.raises(DataError, match=says):
        apply_settings(recipe, settings)
    apply_settings(recipe, {"epochs": "2"})


@pytest.mark.parametrize("order", [("features", "knots"), ("knots", "features")])
def test_one_setting_allows_another_in_any_order(order: Sequence[str]) -> None:
    texts = {"features": "both", "knots": "3"}
    recipe = apply_settings(TLPRecipe(), {key: texts[key] for key in order})
    assert isinstance(recipe, TLPRecipe) and recipe.config.knots == 3


def test_sides_are_disjoint_and_complete(toy: ProgramSet) -> None:
    sides = make_sides(toy, DataSelection(fold=1))
    together = [*sides.train, *sides.validation, *sides.held_out]
    assert sorted(together) == list(range(len(toy.tasks)))
    assert sides.held_out and sides.train


def test_fold_minus_one_holds_nothing_out(toy: ProgramSet) -> None:
    assert make_sides(toy, DataSelection(fold=-1)).held_out == ()
    assert str(DataSelection(fold=-1)) == "none held out"
    assert str(DataSelection(fold=1)) == "by-workload, fold 1 held out"


def test_a_task_without_valid_records_is_on_no_side(toy: ProgramSet) -> None:
    latency = toy.latency.copy()
    latency[toy.task == 2] = np.nan
    sides = make_sides(replace(toy, latency=latency), DataSelection())
    assert 2 not in {*sides.train, *sides.validation, *sides.held_out}


def test_all_failed_is_refused(toy: ProgramSet) -> None:
    latency = np.full_like(toy.latency, np.nan)
    with pytest.raises(DataError, match="records failed"):
        make_sides(replace(toy, latency=latency), DataSelection())


def test_tasks_of_one_program_each_are_not_called_failures(toy: ProgramSet) -> None:
    latency = np.full_like(toy.latency, np.nan)
    valid = np.flatnonzero(np.isfinite(toy.latency).any(1))
    first = valid[np.unique(toy.task[valid], return_index=True)[1]]
    latency[first] = toy.latency[first]
    message = rf"none of these records' {len(first)} tasks has so many"
    with pytest.raises(DataError, match=message):
        make_sides(replace(toy, latency=latency), DataSelection())


def test_a_network_is_held_out_wherever_it_occurs(toy: ProgramSet) -> None:
    networks = {"one": toy.tasks[:2], "other": toy.tasks[1:3]}
    selection = DataSelection(split="by-network", networks=networks, held_out="one")
    assert make_sides(toy, selection).held_out == (0, 1)


def test_records_that_name_no_network(toy: ProgramSet) -> None:
    with pytest.raises(DataError, match="do not say; give --networks"):
        make_sides(toy, DataSelection(split="by-network"))
    known = {"one": toy.tasks[:1]}
    with pytest.raises(DataError, match="did you mean 'one'"):
        make_sides(toy, DataSelection(split="by-network", networks=known, held_out="on"))


def test_a_card_says_where_the_model_comes_from(tmp_path: Path) -> None:
    recipe = apply_settings(PhysicsRecipe(selection=DataSelection(platforms=(NEW,))), QUICK)
    with cpu_store(tmp_path / "store") as store:
        programs = read_programs([store], platforms=(NEW,))
        sides = make_sides(programs, recipe.selection)
        train_model(recipe, [store], tmp_path / "models" / "new", command="tensorese train")
    model = load_model(tmp_path / "models" / "new")
    card = model.card
    assert set(card.targets) == {NEW}
    assert json.loads(card.targets[NEW]) == {"kind": "llvm", "mcpu": "lake", "num-cores": 16}
    assert set(card.training_workloads) == {programs.tasks[k] for k in sides.seen}
    assert not {programs.tasks[k] for k in sides.held_out} & set(card.training_workloads)
    assert card.data_hash == programs.digest and card.train["fit"]["steps"] == 40
    assert card.metrics[f"{NEW} held-out tasks"] == len(sides.held_out)
    assert card.command == "tensorese train"
    assert f"# physics for {NEW}" in (tmp_path / "models" / "new" / CARD).read_text()
    # A platform of eight cores of that make is nearest to what the card names.
    near = Platform(name="here", target='{"kind":"llvm","mcpu":"lake","num-cores":8}')
    choice = choose(near, [tmp_path / "models"])
    assert choice is not None and choice.head == NEW


def test_a_killed_training_goes_on_exactly(tmp_path: Path) -> None:
    recipe = apply_settings(PhysicsRecipe(selection=DataSelection(platforms=(OLD,))), QUICK)
    weights = []
    with cpu_store(tmp_path / "store") as store:
        whole, torn = tmp_path / "whole", tmp_path / "torn"
        train_model(recipe, [store], whole)
        with pytest.raises(Killed):
            train_model(recipe, [store], torn, progress=kill_after(2))
        assert (torn / CHECKPOINT).exists() and not (torn / "config.json").exists()
        epochs: list[int] = []
        train_model(
            recipe, [store], torn, resume=True, progress=lambda e: epochs.append(e["epoch"])
        )
        assert epochs[0] == 3 and not (torn / CHECKPOINT).exists()
        weights = [(folder / "model.safetensors").read_bytes() for folder in (whole, torn)]
    assert weights[0] == weights[1]


def test_without_resume_training_starts_again(tmp_path: Path) -> None:
    recipe = apply_settings(PhysicsRecipe(selection=DataSelection(platforms=(OLD,))), QUICK)
    epochs: list[int] = []
    with cpu_store(tmp_path / "store") as store:
        with pytest.raises(Killed):
            train_model(recipe, [store], tmp_path / "m", progress=kill_after(1))
        train_model(recipe, [store], tmp_path / "m", progress=lambda e: epochs.append(e["epoch"]))
    assert epochs[0] == 1
