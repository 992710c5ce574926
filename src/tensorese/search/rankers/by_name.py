"""What `--model` means: `none`, `auto` or a trained model's folder, as a ranker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tensorese.models.base import Model, ModelError, load_model
from tensorese.models.catalog import choose
from tensorese.records.nouns import Platform
from tensorese.search.contracts import Ranker
from tensorese.search.loop.config import TuneError
from tensorese.search.rankers.guided import AutoRanker, FeatureSource, GuidedRanker, read_here
from tensorese.search.rankers.online import OnlineRanker
from tensorese.search.rankers.staged import Staged

LOWERED = 64
"""Programs of a sketch that are lowered at a time for a model that asks for it."""


@dataclass(frozen=True, kw_only=True)
class Named:
    """A model that was asked for: which of its heads speaks, and a line for people."""

    model: Model
    head: str
    line: str


def ranker_named(
    spec: str,
    platform: Platform,
    folders: Sequence[Path] | None = None,
    features: FeatureSource = read_here,
) -> tuple[Ranker, str]:
    """The ranker, and a line for people on what was chosen; `folders` are where `auto` looks."""
    if spec == "none":
        return OnlineRanker(), ""
    named, passed_over = model_named(spec, platform, folders)
    if named is not None:
        line = f"starting from {named.line}"
        return guided(named.model, named.head, features), "; ".join([*passed_over, line])
    line = f"no trained model is of {platform.name}'s kind: learning from this run alone"
    return OnlineRanker(), "; ".join([*passed_over, line])


def model_named(
    spec: str, platform: Platform, folders: Sequence[Path] | None = None
) -> tuple[Named | None, list[str]]:
    """The model of a folder, or for `auto` the one that fits the platform, if any does; and which
    damaged ones were passed over."""
    if spec == "auto":
        return _auto(platform, folders)
    folder = Path(spec)
    if not folder.is_dir():
        raise TuneError(f"--model must be auto, none or a model's folder, but {spec!r} is none")
    model = load_model(folder)
    head = platform.name if platform.name in model.platforms else model.platforms[0]
    return Named(model=model, head=head, line=f"{folder}, {about(model)}, its head {head}"), []


def _auto(platform: Platform, folders: Sequence[Path] | None) -> tuple[Named | None, list[str]]:
    """The best model that can be loaded; a damaged one is passed over and named."""
    damaged: dict[Path, str] = {}
    named = None
    while named is None and (choice := choose(platform, folders, damaged=damaged)) is not None:
        try:
            model = load_model(choice.folder)
        except ModelError as error:
            damaged[choice.folder] = str(error)
            continue
        line = f"the model {choice.folder.name}, {about(model)} ({choice.why})"
        named = Named(model=model, head=choice.head, line=line)
    return named, [f"passed over {path}: {why}" for path, why in damaged.items()]


def about(model: Model) -> str:
    """What kind of model this is, and what it sees."""
    article = "an" if model.kind[0] in "aeiou" else "a"
    return f"{article} {model.kind} on {model.needs.name} features"


def guided(model: Model, head: str, features: FeatureSource = read_here) -> Ranker:
    """Starts from the model and learns from the run; steps aside where that is worse."""
    ranker = AutoRanker(GuidedRanker(model, head, features=features))
    return Staged(OnlineRanker(), ranker, LOWERED) if model.needs.lowers else ranker
