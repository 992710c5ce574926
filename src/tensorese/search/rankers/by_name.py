"""What `--model` means: `none`, `auto` or a trained model's folder, as a ranker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tensorese.models.base import Model, ModelError, load_model
from tensorese.models.catalog import choose, target_of
from tensorese.records.nouns import Platform
from tensorese.search.contracts import Ranker
from tensorese.search.loop.config import TuneError
from tensorese.search.rankers.guided import AutoRanker, FeatureSource, GuidedRanker, read_here
from tensorese.search.rankers.online import OnlineRanker
from tensorese.search.rankers.staged import Staged

LOWERED, SHARE = 64, 1 / 16
"""Programs of a sketch that are lowered at a time for a model that asks for it, at most, and of
those that are ranked: a generation of a search is hundreds, and each costs TVM milliseconds."""


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
    named, passed_over = model_named(spec, platform, folders, features)
    if named is not None:
        ranker, line = starting_from(named, platform, folders, features)
        return ranker, "; ".join([*passed_over, f"starting from {line}"])
    line = f"no trained model is of {platform.name}'s kind: learning from this run alone"
    return OnlineRanker(), "; ".join([*passed_over, line])


def starting_from(
    named: Named,
    platform: Platform,
    folders: Sequence[Path] | None = None,
    features: FeatureSource = read_here,
) -> tuple[Ranker, str]:
    """A model of lowered programs judges what a cheap one of the platform drafts."""
    if not named.model.needs.lowers:
        return guided(named.model, named.head, features), named.line
    cheap, _ = _auto(platform, folders, lowered=False)
    if cheap is None:
        return guided(named.model, named.head, features), named.line
    draft = guided(cheap.model, cheap.head)
    line = f"{named.line}; it judges short lists of {cheap.line}"
    return guided(named.model, named.head, features, draft), line


def model_named(
    spec: str,
    platform: Platform,
    folders: Sequence[Path] | None = None,
    features: FeatureSource = read_here,
) -> tuple[Named | None, list[str]]:
    """The model of a folder, or for `auto` the one that fits the platform, if any does; and which
    damaged ones were passed over. Where nobody lowers programs, no model that needs it is one."""
    lowered = features is not read_here
    if spec == "auto":
        return _auto(platform, folders, lowered=lowered)
    folder = Path(spec)
    if not folder.is_dir():
        raise TuneError(f"--model must be auto, none or a model's folder, but {spec!r} is none")
    model = load_model(folder)
    if model.needs.lowers and not lowered:
        raise TuneError(
            f"a {model.kind} ranks lowered programs, which takes a farm's build workers, but there "
            f"are none here; name a model of other features than {folder}, or auto"
        )
    head = platform.name if platform.name in model.platforms else model.platforms[0]
    _check_kind(folder, model, head, platform)
    return Named(model=model, head=head, line=f"{folder}, {about(model)}, its head {head}"), []


def _check_kind(folder: Path, model: Model, head: str, platform: Platform) -> None:
    """A GPU's features are none of a CPU's programs."""
    theirs = target_of(head, model.card.targets.get(head, "{}")).get("kind")
    ours = target_of(platform.name, platform.target).get("kind")
    if ours and theirs and ours != theirs:
        raise TuneError(
            f"a model ranks programs of the kind of target it was trained for, but {folder} is for "
            f"{theirs} ({head}) and this run for {ours} ({platform.name}); name another, or auto"
        )


def _auto(
    platform: Platform, folders: Sequence[Path] | None, *, lowered: bool
) -> tuple[Named | None, list[str]]:
    """The best model that can be loaded; a damaged one is passed over and named."""
    damaged: dict[Path, str] = {}
    named = None
    while named is None:
        choice = choose(platform, folders, damaged=damaged, lowered=lowered)
        if choice is None:
            break
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


def guided(
    model: Model, head: str, features: FeatureSource = read_here, draft: Ranker | None = None
) -> Ranker:
    """Starts from the model and learns from the run; steps aside where that is worse."""
    ranker = AutoRanker(GuidedRanker(model, head, features=features))
    return Staged(draft or OnlineRanker(), ranker, LOWERED, SHARE) if model.needs.lowers else ranker
