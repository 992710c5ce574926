"""What every model is, and how it is stored: contract, registry, folder format 2.

A folder holds `config.json` (a head that all kinds share and the kind's own section),
`model.safetensors` and `card.md`. Nothing in it is executed on loading; pickles are refused
whatever their name. Torch is not imported here: a kind that needs it imports it itself.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save_file

from tensorese import __version__
from tensorese.arrays import Floats32
from tensorese.errors import TensoreseError, did_you_mean
from tensorese.features import base as features
from tensorese.features.base import FeatureSet
from tensorese.features.programs import ProgramSet
from tensorese.records.nouns import Sketch, Workload

FORMAT, FORMAT_VERSION = "tensorese-model", 2
WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "card.md"
Tensors: TypeAlias = Mapping[str, npt.NDArray[Any]]
_WRONG = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What reading a config that describes other weights, or nothing, comes to."""
Section: TypeAlias = Mapping[str, Any]
"""JSON that one kind of model writes and reads."""
LOWEST = np.float32(-1e4)
"""Opinion of a program whose features cannot be had, since TVM cannot lower it."""
_HOMES = {
    "tlp": "tlp",
    "mtl-tlp": "tlp",
    "physics": "physics_net",
    "trees": "trees",
    "ensemble": "ensemble",
    "tlm": "tlm",
    "tenset-mlp": "tenset_mlp",
    **{"atformer": "atformer", "pacm": "pacm", "lstm": "lstm", "mha": "mha", "tabnet": "tabnet"},
    "xgboost": "store_trees",
    "lightgbm": "store_trees",
}
"""Module of this room that registers a kind: imported when the kind is first used."""
_KINDS: dict[str, type[Model]] = {}


class ModelError(TensoreseError):
    """A model that cannot be built, loaded or used as wanted."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """Where a model comes from."""

    command: str = ""
    data_hash: str = ""
    split: str = ""
    training_workloads: tuple[str, ...] = ()
    """Every workload that training or validation has seen, by id: never judged on."""
    train: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    targets: Mapping[str, str] = field(default_factory=dict)
    """JSON of the target each platform's records were measured for, by platform."""


class Model(ABC):
    """Ranks programs of a task. `inputs` is what `read` or `read_all` gives, N programs long."""

    kind: ClassVar[str]
    needs: FeatureSet
    platforms: tuple[str, ...]
    card: Card = Card()
    hash: str = "unsaved"
    """8 hex digits of the weights on disk: identifies the model that picked a program."""

    @abstractmethod
    def opinions(self, inputs: Any, platform: str) -> Floats32:
        """`[N, voters]`: each voter's score; its sigmoid is the task's best latency over the
        program's."""

    def speeds(self, inputs: Any, platform: str) -> Floats32:
        """`[N, voters]`: log2 of speed against the task's best, at most 0."""
        return -softplus(-self.opinions(inputs, platform)) / np.float32(math.log(2.0))

    def by_member(self, inputs: Any, platform: str) -> Floats32:
        """`[N, members]`: the same, averaged over the voters of each part that learnt alone."""
        speeds: Floats32 = self.speeds(inputs, platform).mean(1, keepdims=True)
        return speeds

    def rank(self, inputs: Any, platform: str) -> Floats32:
        """`[N]`: higher is faster; compares programs of one task only."""
        scores: Floats32 = self.opinions(inputs, platform).mean(1)
        return scores

    def read(self, workload: Workload, sketch: Sketch, decisions: npt.ArrayLike) -> Any:
        """Inputs of `[N, d]` decisions of one sketch."""
        return features.extract(self.needs.name, workload, sketch, decisions)

    def read_all(self, programs: ProgramSet) -> Any:
        """Inputs of all programs, in their order."""
        return features.of_programs(self.needs.name, programs)

    def size(self) -> int:
        """Numbers that were learnt."""
        return sum(tensor.size for tensor in self.tensors(half=False).values())

    def head_index(self, platform: str) -> int:
        if platform not in self.platforms:
            raise ModelError(
                f"the model knows {', '.join(self.platforms)}, but got platform {platform!r}"
                f"{did_you_mean(platform, self.platforms)}; name one of them or add a head"
            )
        return self.platforms.index(platform)

    @abstractmethod
    def section(self) -> dict[str, Any]:
        """The kind's own part of `config.json`: with the tensors, all that `build` needs."""

    @abstractmethod
    def tensors(self, *, half: bool) -> Tensors:
        """What was learnt; `half` allows 16 bits where that moves a score by about a thousandth."""

    @classmethod
    @abstractmethod
    def build(
        cls, platforms: tuple[str, ...], section: Mapping[str, Any], tensors: Tensors
    ) -> Self:
        """The model that `section` and `tensors` were taken from.

        Sizes that the tensors do not have are refused before anything of them is allocated.
        """


def softplus(x: Floats32) -> Floats32:
    values: Floats32 = np.logaddexp(np.float32(0.0), x)
    return values


ModelClass = TypeVar("ModelClass", bound=type[Model])


def register(cls: ModelClass) -> ModelClass:
    """Makes `cls.kind` a kind of model folder."""
    _KINDS[cls.kind] = cls
    return cls


def kinds() -> tuple[str, ...]:
    return tuple(dict.fromkeys([*_HOMES, *_KINDS]))


def model_class(kind: str) -> type[Model]:
    if kind not in _KINDS and kind in _HOMES:
        importlib.import_module(f"tensorese.models.{_HOMES[kind]}")
    return _KINDS[kind]


def save_model(
    folder: str | os.PathLike[str], model: Model, card: Card, *, half: bool = False
) -> Path:
    """Everything is written aside first: what was there before stays whole until all of it is."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    tensors = {name: np.asarray(t, order="C") for name, t in model.tensors(half=half).items()}
    aside = {name: path / f".{name}.{os.getpid()}" for name in (WEIGHTS, CARD, CONFIG)}
    save_file(tensors, aside[WEIGHTS])
    digest = hashlib.sha256(aside[WEIGHTS].read_bytes()).hexdigest()
    config = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "tensorese": __version__,
        "kind": model.kind,
        "platforms": list(model.platforms),
        "features": {"name": model.needs.name, "version": model.needs.version},
        "section": model.section(),
        "weights_sha256": digest,
        "card": asdict(card),
    }
    aside[CARD].write_text(_card_text(model, card))
    aside[CONFIG].write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    for name, scratch in aside.items():
        os.replace(scratch, path / name)
    model.card, model.hash = card, digest[:8]
    return path


def _card_text(model: Model, card: Card) -> str:
    lines = [
        f"# {model.kind} for {', '.join(model.platforms)}",
        "",
        f"- parameters: {model.size():,}",
        f"- features: {model.needs.name} {model.needs.version}",
        f"- data: {card.data_hash or 'unknown'}",
        f"- split: {card.split or 'none'}",
        f"- workloads seen in training: {len(card.training_workloads)}",
        f"- command: `{card.command}`",
        "",
        "| metric | value |",
        "|---|---|",
    ]
    for name, value in card.metrics.items():
        shown = f"{value:.4f}" if isinstance(value, float) else str(value)
        lines.append(f"| {name} | {shown} |")
    lines += ["", "Scores are unitless; they compare programs of one task, higher is faster.", ""]
    return "\n".join(lines)


def load_model(folder: str | os.PathLike[str]) -> Model:
    path = Path(folder)
    config = read_config(path)
    tensors = _read_weights(path, config)
    _check_definition(path, config)
    try:
        cls = model_class(config["kind"])
        model = cls.build(tuple(config["platforms"]), config["section"], tensors)
        card = dict(config["card"])
        model.card = Card(**{**card, "training_workloads": tuple(card["training_workloads"])})
    except (ModelError, *_WRONG) as error:
        why = str(error) if isinstance(error, ModelError) else type(error).__name__
        raise ModelError(
            f"weights and {CONFIG} must describe one model, but in {path} they do not "
            f"({why}); train it again or restore the folder"
        ) from error
    _check_features(path, config["features"], model.needs)
    model.hash = str(config["weights_sha256"])[:8]
    return model


def _check_definition(path: Path, config: Mapping[str, Any]) -> None:
    """Before the weights are used: those of another definition need not fit this program's network.
    What a matrix holds is a setting of the model."""
    theirs = config.get("features")
    if not isinstance(theirs, dict) or not {"name", "version"} <= theirs.keys():
        raise ModelError(
            f"{CONFIG} must describe one model, features by name and version, but {path} says "
            f"{str(theirs)[:40]!r}; restore it from a copy"
        )
    name = theirs["name"]
    if isinstance(name, str) and name in features.feature_sets():
        ours = features.feature_set(name)
        if ours.shape != "matrix":
            _check_features(path, theirs, ours)


def _check_features(path: Path, theirs: Mapping[str, str], ours: FeatureSet) -> None:
    if theirs != {"name": ours.name, "version": ours.version}:
        raise ModelError(
            f"a model reads the features it was trained with, but {path} has {theirs.get('name')} "
            f"{theirs.get('version')} and this program has {ours.name} {ours.version}; "
            "train it again"
        )


def read_config(path: Path) -> dict[str, Any]:
    """Of a folder that this program can load; anything else is refused in one line."""
    config = _parse_config(path)
    if config.get("version") != FORMAT_VERSION:
        raise ModelError(
            f"this program reads model folders of version {FORMAT_VERSION}, but {path} has version "
            f"{config.get('version')}; train it again, or use the tensorese that wrote it "
            f"({config.get('tensorese')})"
        )
    if config.get("kind") not in kinds():
        raise ModelError(
            f"a model is one of {', '.join(kinds())}, but {path} is {config.get('kind')!r}; "
            "import the module that registers its kind, or use the tensorese that wrote it"
        )
    return config


def _parse_config(path: Path) -> dict[str, Any]:
    if path.is_file():
        kind = "a pickle, which is never loaded" if _is_pickle(path) else "a file"
        raise ModelError(
            f"a model is a folder with {CONFIG}, but {path} is {kind}; name the folder"
        )
    if not (path / CONFIG).is_file():
        what = "does not exist" if not path.exists() else f"has no {CONFIG}"
        raise ModelError(
            f"a model is a folder with {WEIGHTS} and {CONFIG}, but {path} {what}; "
            "train one with tensorese train"
        )
    try:
        config = json.loads((path / CONFIG).read_text())
    except (ValueError, OSError, RecursionError) as error:
        raise ModelError(
            f"{CONFIG} must be JSON, but {path / CONFIG} is damaged; restore it from a copy"
        ) from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ModelError(
            f"{CONFIG} must say format {FORMAT!r}, but {path} holds another program's model; "
            "train one with tensorese train"
        )
    return config


def _is_pickle(path: Path) -> bool:
    start = path.read_bytes()[:4]
    # A plain pickle starts with PROTO; torch.save writes a zip of pickles.
    return start[:1] == b"\x80" or start == b"PK\x03\x04" or path.suffix in {".pkl", ".pt", ".pth"}


def _read_weights(path: Path, config: Mapping[str, Any]) -> Tensors:
    file = path / WEIGHTS
    if not file.is_file():
        raise ModelError(
            f"a model's weights are in {WEIGHTS}, but {path} has none; restore the folder"
        )
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != config.get("weights_sha256"):
        raise ModelError(
            f"{WEIGHTS} must match the checksum in {CONFIG}, but in {path} it does not: the file "
            "is damaged; restore it from a copy"
        )
    try:
        tensors: Tensors = load(data)
    except (SafetensorError, *_WRONG) as error:
        raise ModelError(
            f"{WEIGHTS} must be a safetensors file, but {file} is not; restore it from a copy"
        ) from error
    for name, tensor in tensors.items():
        if tensor.dtype.kind == "f" and not np.isfinite(tensor).all():
            raise ModelError(
                f"weights must be finite numbers, but {name} in {file} has others; train it again "
                "or restore the folder"
            )
    return tensors
