"""`train tlp` and `train mtl-tlp`: the language alone or with hardware features, as published."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from tensorese.features.programs import ProgramSet, read_programs
from tensorese.models.base import ModelError, load_model
from tensorese.models.tlp import MTLTLP, TLP
from tensorese.training import transferred_labels
from tensorese.training.recipes import tlp as recipes
from tensorese.training.recipes.base import (
    DataSelection,
    Outcome,
    Recipe,
    apply_settings,
    make_sides,
    train_model,
)
from tensorese.training.recipes.tlp import TLPRecipe
from tensorese.training.stacked import keep_labels
from training_support import NEW, OLD, cpu_store, pairs_in_order

pytestmark = pytest.mark.null

QUICK = {"width": "32", "epochs": "12", "size": "32", "lr": "3e-3"}


def _recipe(kind: str, preset: str = "default", *platforms: str, **more: str) -> Recipe:
    named = TLPRecipe.named(kind, preset, DataSelection(platforms=platforms))
    quick = {k: v for k, v in QUICK.items() if preset == "default" or k != "width"}
    return apply_settings(named, {**quick, **more})


def _model(outcome: Outcome) -> TLP:
    model = load_model(outcome.folder)
    assert isinstance(model, TLP)
    return model


@pytest.mark.parametrize("features", ["language", "both"])
def test_it_ranks_unseen_tasks(tmp_path: Path, features: str) -> None:
    with cpu_store(tmp_path / "store") as store:
        recipe = _recipe("tlp", "default", OLD, features=features)
        outcome = train_model(recipe, [store], tmp_path / "model")
        programs = read_programs([store], platforms=(OLD,))
    model = _model(outcome)
    assert model.kind == "tlp" and model.platforms == (OLD,)
    assert model.network.config.spec.physics == (features == "both")
    assert any("physics" in name for name in model.tensors(half=False)) == (features == "both")
    held_out = make_sides(programs, DataSelection()).held_out
    assert pairs_in_order(model, programs, OLD, held_out) > 0.6
    assert outcome.metrics["epochs"] == 12


def test_the_language_alone_is_the_default() -> None:
    recipe = TLPRecipe.named("tlp", "default", DataSelection())
    assert recipe.features == "language" and recipe.kind == "tlp"


def test_the_paper_preset_is_the_published_network(tmp_path: Path) -> None:
    with cpu_store(tmp_path / "store", (OLD,), tasks=4, per_task=8) as store:
        outcome = train_model(_recipe("tlp", "paper", epochs="1"), [store], tmp_path / "model")
    config = _model(outcome).network.config
    assert (config.style, config.width, config.heads) == ("paper", 256, 8)
    assert (config.spec.length, config.spec.numbers) == (25, 11)


def test_two_platforms_are_not_for_tlp(tmp_path: Path) -> None:
    with (
        cpu_store(tmp_path / "store", tasks=4, per_task=8) as store,
        pytest.raises(ModelError, match=r"tlp has one platform, but got .*; use mtl-tlp"),
    ):
        train_model(_recipe("tlp"), [store], tmp_path / "model")


def test_a_head_a_platform_and_whether_they_help_each_other(tmp_path: Path) -> None:
    with cpu_store(tmp_path / "store") as store:
        outcome = train_model(_recipe("mtl-tlp"), [store], tmp_path / "model")
        programs = read_programs([store])
    model = _model(outcome)
    assert isinstance(model, MTLTLP) and set(model.platforms) == {OLD, NEW}
    assert "validation top-1" in outcome.metrics["transfer"]
    assert "adding them" in outcome.metrics["transfer"]
    tasks = range(len(programs.tasks))
    own = pairs_in_order(model, programs, NEW, tasks)
    assert own > pairs_in_order(model, programs, OLD, tasks, label=NEW)


def test_a_platform_with_few_labels_learns_the_others(
    lakes: ProgramSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lightgbm")
    few = keep_labels(lakes, NEW, range(len(lakes.tasks)), len(lakes) // 5, seed=0)
    monkeypatch.setattr(transferred_labels, "ENOUGH", 1)
    some, head = range(len(lakes.tasks) - 1), lakes.head(NEW)
    several = TLPRecipe.named("mtl-tlp", "default", DataSelection())
    learnt, note = several._labels(few, some)
    assert f"{NEW} has few labels and learns" in note and "--set transfer=false" in note
    assert len(learnt.valid(head)) > len(few.valid(head))
    last = lakes.task == len(lakes.tasks) - 1  # not learnt from: no label is expected there
    np.testing.assert_array_equal(learnt.latency[last], few.latency[last])
    for recipe in (
        replace(several, transfer=False),
        TLPRecipe.named("mtl-tlp", "paper", DataSelection()),
        TLPRecipe.named("tlp", "default", DataSelection()),
    ):
        assert recipe._labels(few, some) == (few, "")
    monkeypatch.setattr(recipes, "can_grow", lambda: False)
    assert several._labels(few, some) == (few, "")


def test_defaults_are_the_frozen_configuration() -> None:
    """What `tensorese train` does is what the final table was made with."""
    path = Path(__file__).parents[3] / "benchmarks" / "tlp_frozen.json"
    frozen = json.loads(path.read_text())["settings"]
    recipe = TLPRecipe()
    config, fit = asdict(recipe.config), asdict(recipe.fit)
    assert {k: config[k] for k in frozen["trunk"]} == frozen["trunk"]
    assert {k: fit[k] for k in frozen["train"]} == frozen["train"]
    assert {k: fit["groups"][k] for k in frozen["groups"]} == frozen["groups"]
    assert config["members"] == frozen["members"]
