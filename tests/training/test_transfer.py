"""Going on from another model: heads by nearness, sizes kept, parts left as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from lowered_support import with_made_up
from tensorese.features.programs import ProgramSet
from tensorese.models.atformer import ATFormerConfig
from tensorese.models.base import Card, Model, load_model, save_model
from tensorese.models.store_network import StoreModel
from tensorese.training.labels import only
from tensorese.training.recipes import recipe_class
from tensorese.training.recipes.base import DataSelection, Trained, TrainingJob, apply_settings
from tensorese.training.recipes.base import make_sides as sides_of
from tensorese.training.transfer import (
    Freeze,
    Start,
    TransferError,
    read_start,
    sizes_of,
    still,
)
from training_support import NEW, OLD, cpu_programs, pairs_in_order

pytestmark = pytest.mark.null

QUICK = {"epochs": "8", "size": "32", "lr": "3e-3"}


@pytest.fixture(scope="module")
def lowered(tmp_path_factory: pytest.TempPathFactory) -> ProgramSet:
    return with_made_up(cpu_programs(tmp_path_factory.mktemp("lakes")))


@pytest.fixture(scope="module")
def source(lowered: ProgramSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the old platform's labels."""
    trained = _train(only(lowered, OLD))
    folder = tmp_path_factory.mktemp("source")
    return save_model(folder, trained.model, Card(training_workloads=("seen",)))


def _train(
    programs: ProgramSet, start: Start | None = None, kind: str = "tenset-mlp", **settings: str
) -> Trained:
    recipe = recipe_class(kind).named(kind, "default", DataSelection())
    recipe = apply_settings(recipe, {**QUICK, **settings})
    sides = sides_of(programs, DataSelection())
    return recipe.train(TrainingJob(programs=programs, sides=sides, stores=(), start=start))


def _start(source: Path, freeze: Freeze = "none") -> Start:
    return Start(folder=source, model=load_model(source), freeze=freeze)


def test_without_a_step_it_is_the_other_model_under_a_new_name(
    lowered: ProgramSet, source: Path
) -> None:
    start = _start(source)
    model = _train(only(lowered, NEW), start, lr="0.0").model
    assert model.platforms == (NEW,)
    before, after = start.model.rank(lowered.lowered, OLD), model.rank(lowered.lowered, NEW)
    np.testing.assert_allclose(after, before, rtol=1e-6)


@pytest.mark.parametrize("freeze", ["none", "encoder", "all-but-head"])
def test_what_is_frozen_stays_and_the_rest_learns(
    freeze: Freeze, lowered: ProgramSet, source: Path
) -> None:
    start = _start(source, freeze)
    trained = _train(only(lowered, NEW), start, epochs="2")
    before, after = (m.tensors(half=False) for m in (start.model, trained.model))
    moved = {
        name.split(".")[1]
        for name, tensor in before.items()
        if not np.array_equal(tensor, after[name])
    }
    rest = {"none": {"encoder", "blocks"}, "encoder": {"blocks"}, "all-but-head": set[str]()}
    assert moved == {"head"} | rest[freeze]
    assert f"{OLD}'s for {NEW}" in trained.notes[-1]
    assert all(p.requires_grad for p in cast(StoreModel, trained.model).network.parameters())


def test_few_labels_are_worth_more_after_pre_training(lowered: ProgramSet, source: Path) -> None:
    held_out = sides_of(lowered, DataSelection()).held_out
    same = only(lowered, OLD)
    some = np.random.default_rng(0).random(same.latency.shape) < 0.1
    few = replace(same, latency=np.where(some, same.latency, np.nan))
    scratch = _train(few, epochs="4").model
    went_on = _train(few, _start(source), epochs="4", lr="3e-4").model
    marks = [pairs_in_order(model, lowered, OLD, held_out) for model in (scratch, went_on)]
    assert marks[1] > marks[0] + 0.02


class _Told(Model):
    """Of the kind that is asked for, with these platforms; nothing else of it is looked at."""

    def __init__(self, targets: dict[str, str]) -> None:
        self.platforms, self.card = tuple(targets), Card(targets=targets)

    def opinions(self, inputs: Any, platform: str) -> Any:
        raise NotImplementedError

    def section(self) -> dict[str, Any]:
        raise NotImplementedError

    def tensors(self, *, half: bool) -> Any:
        raise NotImplementedError

    @classmethod
    def build(cls, platforms: tuple[str, ...], section: Any, tensors: Any) -> Any:
        raise NotImplementedError


def test_a_platform_begins_with_its_own_head_or_the_nearest_or_the_first() -> None:
    known = ("emeraldrapids-16c", "znver4-2c", "znver4-16c")
    start = Start(folder=Path("m"), model=_Told(dict.fromkeys(known, "{}")))
    assert start.heads(["znver4-2c", "znver5-2c", "emeraldrapids-8c", "cuda-sm_90"], ()) == {
        "znver4-2c": "znver4-2c",
        "znver5-2c": "znver4-2c",
        "emeraldrapids-8c": "emeraldrapids-16c",
        "cuda-sm_90": "emeraldrapids-16c",
    }


def test_sizes_are_the_other_models_unless_another_was_set() -> None:
    theirs, usual = ATFormerConfig(width=64, hidden=0.15), ATFormerConfig()
    assert sizes_of(Path("m"), theirs, usual, usual) == ATFormerConfig(width=64)
    hiding = ATFormerConfig(width=64, hidden=0.3)
    assert sizes_of(Path("m"), theirs, hiding, usual) == hiding
    with pytest.raises(TransferError, match="but width is 64 there and 128 here; leave"):
        sizes_of(Path("m"), theirs, ATFormerConfig(width=128), usual)


def test_parts_that_stay() -> None:
    parts = ("encoder", "attention", "head")
    assert still(parts, "none") == ()
    assert still(parts, "encoder") == ("encoder",)
    assert still(parts, "all-but-head") == ("encoder", "attention")


def test_what_cannot_be_gone_on_from_is_one_line(source: Path) -> None:
    with pytest.raises(TransferError, match="one network, but ensemble is not"):
        read_start(source, "none", "ensemble", ())
    with pytest.raises(TransferError, match=r"of tlp is one of none, but got 'encoder'"):
        read_start(source, "encoder", "tlp", ("none",))
    with pytest.raises(TransferError, match=r"did you mean 'encoder'"):
        read_start(source, "encodr", "tenset-mlp", ("none", "encoder"))
    with pytest.raises(TransferError, match="is tenset-mlp and this lstm; train tenset-mlp"):
        read_start(source, "none", "lstm", ("none",))


@pytest.mark.parametrize("kind", ["physics", "mtl-tlp"])
def test_networks_that_are_not_of_stores_go_on_too(
    kind: str, lowered: ProgramSet, tmp_path: Path
) -> None:
    few = {"width": "16", "lr": "3e-3"}
    few |= {"steps": "20", "rows": "64", "networks": "2"} if kind == "physics" else {"epochs": "2"}
    recipe = apply_settings(recipe_class(kind).named(kind, "default", DataSelection()), few)
    old = only(lowered, OLD)
    sides = sides_of(lowered, DataSelection())
    first = recipe.train(TrainingJob(programs=old, sides=sides, stores=())).model
    save_model(tmp_path, first, Card())
    usual = recipe_class(kind).named(kind, "default", DataSelection())
    still_rate = apply_settings(usual, {**few, "width": "16", "lr": "0.0"})
    start = Start(folder=tmp_path, model=load_model(tmp_path), freeze="all-but-head")
    job = TrainingJob(programs=lowered, sides=sides, stores=(), start=start)
    same = still_rate.train(job).model
    assert same.platforms == (OLD, NEW) or same.platforms == (NEW, OLD)
    scores = [m.rank(m.read_all(lowered), name) for m, name in ((first, OLD), (same, NEW))]
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-4, atol=1e-5)
    trained = recipe.train(job)
    tensors = [m.tensors(half=False) for m in (start.model, trained.model)]
    kept = [name for name in tensors[0] if ".heads." not in name]
    assert kept and all(np.array_equal(tensors[0][name], tensors[1][name]) for name in kept)
    heads = trained.model.rank(trained.model.read_all(lowered), NEW)
    assert not np.allclose(heads, scores[1])
    assert "all but the head" in trained.notes[-1]


def test_an_encoder_of_the_language_stays(lowered: ProgramSet, tmp_path: Path) -> None:
    few = {"width": "16", "epochs": "1"}
    recipe = apply_settings(recipe_class("tlp").named("tlp", "default", DataSelection()), few)
    sides = sides_of(lowered, DataSelection())
    first = recipe.train(TrainingJob(programs=only(lowered, OLD), sides=sides, stores=())).model
    start = Start(folder=tmp_path, model=first, freeze="encoder")
    job = TrainingJob(programs=only(lowered, NEW), sides=sides, stores=(), start=start)
    after = recipe.train(job).model.tensors(half=False)
    moved = {n for n, tensor in first.tensors(half=False).items() if (tensor != after[n]).any()}
    assert moved and not any(".trunk.rows." in name for name in moved)
    assert any(".trunk." in name for name in moved) and any(".heads." in name for name in moved)
    with pytest.raises(TransferError, match=r"features of .*language.*both; give others"):
        apply_settings(recipe, {"features": "both"}).train(job)
