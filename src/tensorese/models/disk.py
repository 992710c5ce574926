"""What every model folder holds, read without torch: `config.json`, and the weights' bytes.

Nothing in it is executed on loading; pickles are refused whatever their name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensorese.errors import TensoreseError
from tensorese.features.physics import MACHINES, features_hash
from tensorese.language.vocabulary import Vocabulary

FORMAT = "tensorese-model"
FORMAT_VERSION = 1
KIND_NAMES = ("tlp", "mtl-tlp")
WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "card.md"
TREES = "trees.safetensors"
"""Where there are trees beside the networks; their checksum is in `config.json` too."""


class ModelError(TensoreseError):
    """A model that cannot be built, loaded or asked as wanted."""


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


def read_card(config: Mapping[str, Any]) -> Card:
    fields = {**config["card"]}
    fields["training_workloads"] = tuple(fields["training_workloads"])
    return Card(**fields)


def read_config(path: Path) -> dict[str, Any]:
    """Of a folder that this program can load; anything else is refused in one line."""
    config = _parse_config(path)
    _check(path, config)
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
    except (ValueError, OSError) as error:
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


def _check(path: Path, config: dict[str, Any]) -> None:
    if config.get("version") != FORMAT_VERSION:
        raise ModelError(
            f"this program reads model version {FORMAT_VERSION}, but {path} is version "
            f"{config.get('version')}; use the tensorese that wrote it ({config.get('tensorese')})"
        )
    if config.get("kind") not in KIND_NAMES:
        raise ModelError(
            f"a model is one of {', '.join(KIND_NAMES)}, but {path} is {config.get('kind')!r}; "
            "use the tensorese that wrote it"
        )
    machine = config.get("matrix", {}).get("machine", "gpu")
    known = features_hash(machine) if machine in MACHINES else f"none for {machine!r}"
    if config.get("features") != known:
        raise ModelError(
            f"a model reads the features it was trained with, but {path} has "
            f"{config.get('features')} and this program has {known}; train it again"
        )
    ours, theirs = Vocabulary(), config.get("vocabulary", {})
    if theirs.get("hash") != ours.hash:
        raise ModelError(
            f"a model reads the vocabulary it was trained with, but {path} has "
            f"{theirs.get('hash')} (version {theirs.get('version')}) and this program has "
            f"{ours.hash} (version {ours.version}); train it again"
        )


def read_bytes(
    path: Path, config: Mapping[str, Any], name: str = WEIGHTS, key: str = "weights_sha256"
) -> bytes:
    """The weights' file (or the trees'), undamaged."""
    file = path / name
    if not file.is_file():
        raise ModelError(
            f"a model's weights are in {name}, but {path} has none; restore the folder"
        )
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != config.get(key):
        raise ModelError(
            f"{name} must match the checksum in {CONFIG}, but in {path} it does not: the file "
            "is damaged; restore it from a copy"
        )
    return data


def not_one_model(path: Path, error: Exception) -> ModelError:
    return ModelError(
        f"weights and {CONFIG} must describe one model, but in {path} they do not "
        f"({type(error).__name__}); train it again or restore the folder"
    )
