"""What `--model` means: `none`, `auto` or a trained model's folder, as a ranker."""

from __future__ import annotations

from collections.abc import Sequence
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


def ranker_named(
    spec: str,
    platform: Platform,
    folders: Sequence[Path] | None = None,
    features: FeatureSource = read_here,
) -> tuple[Ranker, str]:
    """The ranker, and a line for people on what was chosen; `folders` are where `auto` looks."""
    if spec == "none":
        return OnlineRanker(), ""
    if spec == "auto":
        return _auto(platform, folders, features)
    folder = Path(spec)
    if not folder.is_dir():
        raise TuneError(f"--model must be auto, none or a model's folder, but {spec!r} is none")
    model = load_model(folder)
    head = platform.name if platform.name in model.platforms else model.platforms[0]
    return guided(model, head, features), f"starting from {folder}, {about(model)}, its head {head}"


def _auto(
    platform: Platform, folders: Sequence[Path] | None, features: FeatureSource
) -> tuple[Ranker, str]:
    """The best model that can be loaded; a damaged one is passed over and named."""
    damaged: dict[Path, str] = {}
    while (choice := choose(platform, folders, damaged=damaged)) is not None:
        try:
            model = load_model(choice.folder)
        except ModelError as error:
            damaged[choice.folder] = str(error)
            continue
        line = f"starting from the model {choice.folder.name}, {about(model)} ({choice.why})"
        return guided(model, choice.head, features), _naming(damaged, line)
    kind = f"no trained model is of {platform.name}'s kind"
    return OnlineRanker(), _naming(damaged, f"{kind}: learning from this run alone")


def _naming(damaged: dict[Path, str], line: str) -> str:
    return "; ".join([*(f"passed over {path}: {why}" for path, why in damaged.items()), line])


def about(model: Model) -> str:
    """What kind of model this is, and what it sees."""
    article = "an" if model.kind[0] in "aeiou" else "a"
    return f"{article} {model.kind} on {model.needs.name} features"


def guided(model: Model, head: str, features: FeatureSource = read_here) -> Ranker:
    """Starts from the model and learns from the run; steps aside where that is worse."""
    ranker = AutoRanker(GuidedRanker(model, head, features=features))
    return Staged(OnlineRanker(), ranker, LOWERED) if model.needs.lowers else ranker
