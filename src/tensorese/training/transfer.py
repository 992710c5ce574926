"""Training that goes on from another model: its weights, its heads, and the parts left as they are.

A platform that the other model knows begins with its own head, any other with a copy of the
nearest platform's (maker, vectors, cores; architecture of a GPU), or of the first where none is
near. Sizes are those of the other model, and so are the means and spreads of its columns: weights
make no sense with others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from tensorese.errors import TensoreseError, did_you_mean
from tensorese.models.base import Model, Tensors, load_model
from tensorese.models.catalog import distance, target_of
from tensorese.records.store import Store

Freeze: TypeAlias = Literal["none", "encoder", "all-but-head"]
FREEZES: tuple[Freeze, ...] = get_args(Freeze)
FAMILIES = {"mtl-tlp": "tlp"}
"""Kinds that are one network with one head or several."""
_FREE = frozenset({"hidden", "dropout", "noise", "physics_noise"})
"""Settings of training alone: with others the weights are the same function."""


class TransferError(TensoreseError):
    """A model that cannot be gone on from."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Start:
    """What training goes on from, and what of it stays as it is."""

    folder: Path
    model: Model
    freeze: Freeze = "none"

    def heads(self, platforms: Sequence[str], stores: Sequence[Store]) -> dict[str, str]:
        """By platform the head that it begins with."""
        texts = {name: text for store in stores for name, text in store.targets().items()}
        known = {
            head: target_of(head, self.model.card.targets.get(head, "{}"))
            for head in self.model.platforms
        }
        heads = {}
        for name in platforms:
            wanted = target_of(name, texts.get(name, "{}"))
            gaps = {head: distance(wanted, target) for head, target in known.items()}
            heads[name] = name if name in known else min(gaps, key=lambda head: gaps[head])
        return heads

    def note(self, heads: Mapping[str, str]) -> str:
        each = ", ".join(f"{old}'s for {new}" for new, old in heads.items() if old != new)
        began = f"; heads copied: {each}" if each else ""
        kept = {"none": "nothing", "encoder": "its encoder", "all-but-head": "all but the head"}
        return f"went on from {self.folder}{began}; left as it was: {kept[self.freeze]}"


def read_start(folder: Path, freeze: str, kind: str, allowed: Sequence[Freeze]) -> Start:
    """The model of a folder, if a model of this kind can go on from it so."""
    if not allowed:
        raise TransferError(
            f"--init is for kinds that are one network, but {kind} is not; leave it out"
        )
    for name in FREEZES:
        if name == freeze and name in allowed:
            model = load_model(folder)
            if _family(model.kind) != _family(kind):
                raise TransferError(
                    f"--init names a model of the kind that is trained, but {folder} is "
                    f"{model.kind} and this {kind}; train {model.kind} or name another"
                )
            return Start(folder=folder, model=model, freeze=name)
    raise TransferError(
        f"--freeze of {kind} is one of {', '.join(allowed)}, but got {freeze!r}"
        f"{did_you_mean(freeze, allowed)}"
    )


def _family(kind: str) -> str:
    return FAMILIES.get(kind, kind)


def sizes_of(folder: Path, theirs: Any, mine: Any, usual: Any) -> Any:
    """Of dataclasses: the other model's sizes with this run's settings of training.

    A size that was set here and is another one there is refused.
    """
    changes = {}
    for item in fields(mine):
        old, new = getattr(theirs, item.name), getattr(mine, item.name)
        if item.name in _FREE:
            changes[item.name] = new
        elif new not in (old, getattr(usual, item.name)):
            raise TransferError(
                f"a run goes on with the sizes of {folder}, but {item.name} is {old} there and "
                f"{new} here; leave the setting out, or train without --init"
            )
    return replace(theirs, **changes)


def same_features(start: Start, ours: str, theirs: str) -> None:
    if ours != theirs:
        raise TransferError(
            f"a run goes on with the features of {start.folder}, but these are {theirs} and the "
            f"records or settings ask for {ours}; give others, or train without --init"
        )


def still(parts: Iterable[str], freeze: Freeze) -> tuple[str, ...]:
    """Of a network's parts, two of which are "encoder" and "head", those that stay as they are."""
    if freeze == "all-but-head":
        return tuple(name for name in parts if name != "head")
    return ("encoder",) if freeze == "encoder" else ()


def picked_heads(tensors: Tensors, places: Sequence[int]) -> dict[str, Any]:
    """Weights with these heads, in this order, where heads are a numbered list `….heads.N.…`."""
    picked = {}
    for key, tensor in tensors.items():
        trunk, is_head, rest = key.partition(".heads.")
        number, _, part = rest.partition(".")
        if not is_head or not number.isdigit():
            picked[key] = tensor
            continue
        for new, old in enumerate(places):
            if int(number) == old:
                picked[f"{trunk}.heads.{new}.{part}"] = tensor
    return picked
