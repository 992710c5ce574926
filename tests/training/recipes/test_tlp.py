"""`train tlp` and `train mtl-tlp`: the language alone or with hardware features, as published."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from tensorese.features.programs import DataError, ProgramSet, read_programs
from tensorese.models.base import ModelError, load_model
from tensorese.models.network import outputs_of
from tensorese.models.tlp import MTLTLP, TLP
from tensorese.training import transferred_labels
from tensorese.training.recipes import tlp as recipes
from tensorese.training.recipes.base import (
    CURVE,
    DataSelection,
    Outcome,
    Recipe,
    apply_settings,
    make_sides,
    train_model,
)
from tensorese.training.recipes.tlp import TLPRecipe
from tensorese.training.stacked import keep_labels
from tensorese.training.trainer import TrainConfig
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
    with cpu_store(tmp_path / "store", (OLD,), tasks=10, per_task=8) as store:
        outcome = train_model(_recipe("tlp", "paper", epochs="2"), [store], tmp_path / "model")
        programs = read_programs([store])
    model = _model(outcome)
    config = model.network.config
    assert (config.style, config.width, config.heads) == ("paper", 256, 8)
    assert (config.spec.length, config.spec.numbers) == (25, 11)
    inputs = model.read_all(programs)
    rank_output = outputs_of(model.network, inputs, 0, 512)[:, 0, 0].numpy()
    np.testing.assert_array_equal(model.rank(inputs, OLD), rank_output)


def test_the_paper_preset_carries_its_own_training() -> None:
    fit = TLPRecipe.named("tlp", "paper", DataSelection()).fit
    assert (fit.epochs, fit.schedule, fit.lr, fit.clip, fit.loss) == (
        50,
        "constant",
        7e-4,
        0.5,
        "rank",
    )
    assert (fit.groups.size, fit.groups.by_task, fit.average, fit.bf16) == (1024, False, 0.0, False)
    only_rank = ("regret_weight", "regret5_weight", "failed_weight", "octave_weight")
    assert all(getattr(fit, name) == 0.0 for name in only_rank)
    assert TLPRecipe.named("tlp", "default", DataSelection()).fit == TrainConfig()


@pytest.mark.parametrize(
    ("preset", "setting"),
    [
        ("paper", "failed_weight=1"),
        ("paper", "pretrain=5"),
        ("default", "crop=40x22"),
        ("default", "mixer=lstm"),
        ("default", "fails=false"),
    ],
)
def test_settings_without_effect_are_refused(preset: str, setting: str) -> None:
    key, _, value = setting.partition("=")
    named = TLPRecipe.named("tlp", preset, DataSelection())
    with pytest.raises(DataError, match=f"--set {key} has no effect here"):
        apply_settings(named, {key: value})


@pytest.mark.parametrize("crop", ["40", "40x11", "x22", "0x22", "ax22"])
def test_a_crop_is_rows_and_columns(crop: str) -> None:
    named = TLPRecipe.named("tlp", "paper", DataSelection())
    with pytest.raises(DataError, match=f"--set crop={crop} cannot be"):
        apply_settings(named, {"crop": crop})


def test_a_crop_says_what_it_leaves_out(tmp_path: Path) -> None:
    with cpu_store(tmp_path / "store", (OLD,), tasks=4, per_task=8) as store:
        notes, sizes = {}, {}
        for crop in ("9x13", "25x22"):
            recipe = _recipe("tlp", "paper", epochs="1", crop=crop, mixer="lstm")
            outcome = train_model(recipe, [store], tmp_path / crop)
            notes[crop] = [n for n in outcome.notes if "beyond the matrix" in n]
            spec = _model(outcome).network.config.spec
            sizes[crop] = (spec.length, spec.numbers)
    assert sizes == {"9x13": (9, 2), "25x22": (25, 11)}
    assert notes["9x13"] and not notes["25x22"]


def test_a_curve_is_kept_beside_the_model(tmp_path: Path) -> None:
    with cpu_store(tmp_path / "store", (OLD,), tasks=10, per_task=8) as store:
        recipe = _recipe("tlp", epochs="3", pretrain="4")
        train_model(recipe, [store], tmp_path / "model")
    lines = (tmp_path / "model" / CURVE).read_text().splitlines()
    curve = [json.loads(line) for line in lines]
    assert [entry["epoch"] for entry in curve] == [1, 2, 3]
    for entry in curve:
        assert {"loss", "validation_loss", "top1", "top5"} <= set(entry)
        assert 0 < entry["top1"] <= entry["top5"] <= 1


def test_pre_training_changes_where_training_starts(tmp_path: Path) -> None:
    with cpu_store(tmp_path / "store", (OLD,), tasks=4, per_task=8) as store:
        models = [
            _model(train_model(_recipe("tlp", epochs="1", pretrain=n), [store], tmp_path / n))
            for n in ("0", "5")
        ]
    one, two = (m.network.get_parameter("members.0.trunk.rows.numbers.weight") for m in models)
    assert (one - two).abs().max() > 1e-3


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
