"""From the base model and the programs so far to the next model of a run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from tensorese.features.programs import DataError, ProgramSet
from tensorese.iterate.config import IterateError
from tensorese.iterate.folder import IterationFolder
from tensorese.language.sentence import UNKNOWN
from tensorese.models.base import Card, save_model
from tensorese.models.tlm import FASTEST, TLM
from tensorese.records.nouns import Platform
from tensorese.records.store import Store
from tensorese.training.language_model import LanguageConfig, LanguageTrainer
from tensorese.training.recipes.base import DataSelection, apply_settings, train_model
from tensorese.training.recipes.tlm import TLMRecipe
from tensorese.training.sentence_data import SentenceWriter

DEFAULTS = LanguageConfig(steps=300, lr=3e-4)
"""Of fine-tuning in a round: gentler and shorter than training from nothing."""
_OF_THE_BASE = ("width", "layers", "heads", "pretrain", "random")
"""Settings of a model that is trained from `--data` first."""
_UNTOLD = ("pretrain", "best")
"""Stages whose sentences do not tell their speed."""


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """The recipe of `train tlm`, whose `learn` is the fine-tuning of every round."""

    recipe: TLMRecipe

    @classmethod
    def named(
        cls, settings: Mapping[str, str], seed: int, *, has_model: bool = False
    ) -> FineTuning:
        """`settings` as `--set` gives them; `has_model` says that the base is there already."""
        recipe = TLMRecipe(learn=DEFAULTS, seed=seed)
        known = apply_settings(recipe, {k: v for k, v in settings.items() if k != "seed"})
        if "seed" in settings:
            raise DataError("--set seed has no effect here: it is the run's; name it with --seed")
        for name in _OF_THE_BASE if has_model else ():
            if name in settings:
                raise DataError(
                    f"--set {name} has no effect here: it is of a model that is trained from "
                    "--data, but there is one already; leave it out"
                )
        assert isinstance(known, TLMRecipe)
        return cls(recipe=known)

    @property
    def stages(self) -> Sequence[LanguageConfig]:
        recipe = self.recipe
        learn = replace(recipe.learn, seed=recipe.seed)
        pairs = replace(learn, stage="preference", steps=recipe.preference, lr=recipe.preference_lr)
        return [stage for stage in (learn, pairs) if stage.steps > 0]

    def wish(self, base: int) -> int:
        if not self.stages:
            return base
        return UNKNOWN if self.stages[0].stage in _UNTOLD else FASTEST


def fine_tuned(
    base: TLM,
    programs: ProgramSet,
    folder: IterationFolder,
    learnt: int,
    tuning: FineTuning,
    device: str,
    progress: Callable[[dict[str, Any]], None],
) -> TLM:
    """Trains `base` itself; the folder of the result is whole when it appears."""
    platform, text = str(folder.head["platform"]), str(folder.head["target"])
    targets = {**base.targets, platform: text}
    writer = SentenceWriter({platform: json.loads(text)}, atomic=base.atomic)
    writer.add_measured(programs, range(len(programs.tasks)))
    sentences, place = writer.finish(), folder.model_path(learnt)
    states = []
    for number, stage in enumerate(tuning.stages):
        states.append(place.with_name(f".{place.name}-{number}.safetensors"))
        trainer = LanguageTrainer(base.network, sentences, stage, device=device)
        trainer.fit(resume_from=states[-1], progress=progress)
    model = TLM(base.network, targets, tuning.wish(base.wish))
    seen = dict.fromkeys([*base.card.training_workloads, *programs.tasks])
    card = Card(
        command=f"tensorese iterate, after {learnt} rounds",
        data_hash=programs.digest,
        split="none held out",
        training_workloads=tuple(seen),
        metrics={"base": base.hash, "rounds": learnt, "sentences": len(sentences)},
        targets=targets,
    )
    _placed(place, lambda aside: save_model(aside, model, card))
    for state in states:
        state.unlink(missing_ok=True)
    return model


def train_base(
    folder: IterationFolder,
    platform: Platform,
    tuning: FineTuning,
    device: str,
    progress: Callable[[dict[str, Any]], None],
) -> None:
    """A model of `--data`, where no other was named."""
    stores = [Store.open(Path(path)) for path, _ in folder.head["data"]]
    if not any(platform.name in store.platforms() for store in stores):
        raise IterateError(
            f"a first model learns from records of {platform.name}, but --data has none; name "
            "other --data, or a trained model with --model DIR"
        )
    selection = DataSelection(platforms=(platform.name,), fold=-1)
    recipe = replace(tuning.recipe, selection=selection)

    def write(aside: Path) -> None:
        train_model(
            recipe, stores, aside, device=device, command="tensorese iterate", progress=progress
        )

    _placed(folder.model_path(0), write)


def _placed(place: Path, write: Callable[[Path], object]) -> None:
    aside = place.with_name(f".{place.name}.new")
    shutil.rmtree(aside, ignore_errors=True)
    write(aside)
    if place.exists():  # without a config: it was damaged by hand
        shutil.rmtree(place)
    aside.rename(place)


def device_named(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise IterateError(f"--device {name} needs a CUDA device, but torch sees none; name cpu")
    return name
