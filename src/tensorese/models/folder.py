"""A model on disk: a folder with `model.safetensors`, `config.json` and `card.md`.

Nothing in it is executed on loading; pickles are refused whatever their name.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save_file

from tensorese import __version__
from tensorese.language import MatrixSpec, Vocabulary
from tensorese.language.physics import NAMES
from tensorese.models.mtl_tlp import MTLTLP
from tensorese.models.tlp import TLP, ModelError, TLPConfig
from tensorese.models.trunk import TrunkConfig

FORMAT = "tensorese-model"
FORMAT_VERSION = 1
KINDS: dict[str, type[TLP]] = {"tlp": TLP, "mtl-tlp": MTLTLP}
WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "card.md"


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


@dataclass(frozen=True, kw_only=True)
class SavedModel:
    model: TLP
    card: Card


def features_hash() -> str:
    """8 hex digits of the physical features' names and order."""
    return hashlib.sha256("\n".join(NAMES).encode()).hexdigest()[:8]


def save_model(folder: str | os.PathLike[str], model: TLP, card: Card) -> Path:
    """Weights first, `config.json` last: a folder with a config is complete."""
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    state = {name: t.detach().cpu().contiguous() for name, t in model.state_dict().items()}
    save_file(state, path / WEIGHTS)
    vocabulary = Vocabulary()
    config = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "tensorese": __version__,
        "kind": model.kind,
        "platforms": list(model.platforms),
        "trunk": asdict(model.config.trunk),
        "matrix": asdict(model.config.spec),
        "members": model.config.members,
        "physics_members": model.config.physics_members,
        "doubt": model.config.doubt,
        "features": features_hash(),
        "vocabulary": {"version": vocabulary.version, "hash": vocabulary.hash},
        "weights_sha256": hashlib.sha256((path / WEIGHTS).read_bytes()).hexdigest(),
        "card": asdict(card),
    }
    (path / CARD).write_text(_card_text(model, card))
    scratch = path / f".{CONFIG}"
    scratch.write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    os.replace(scratch, path / CONFIG)
    return path


def _card_text(model: TLP, card: Card) -> str:
    size = sum(p.numel() for p in model.parameters())
    lines = [
        f"# {model.kind} for {', '.join(model.platforms)}",
        "",
        f"- parameters: {size:,}",
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


def load_model(folder: str | os.PathLike[str], *, device: str = "cpu") -> SavedModel:
    path = Path(folder)
    config = _read_config(path)
    _check(path, config)
    weights = _read_weights(path, config)
    try:
        spec = MatrixSpec(**config["matrix"])
        shape = TLPConfig(
            trunk=TrunkConfig(**config["trunk"]),
            spec=spec,
            members=config["members"],
            physics_members=config["physics_members"],
            doubt=config["doubt"],
        )
        model = KINDS[config["kind"]](shape, tuple(config["platforms"]))
        model.load_state_dict(weights)
        fields = {**config["card"], "training_workloads": ()}
        fields["training_workloads"] = tuple(config["card"]["training_workloads"])
        card = Card(**fields)
    except (TypeError, KeyError, RuntimeError, ValueError) as error:
        raise ModelError(
            f"weights and {CONFIG} must describe one model, but in {path} they do not "
            f"({type(error).__name__}); train it again or restore the folder"
        ) from error
    return SavedModel(model=model.to(device).eval(), card=card)


def _read_config(path: Path) -> dict[str, Any]:
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
    if config.get("kind") not in KINDS:
        raise ModelError(
            f"a model is one of {', '.join(KINDS)}, but {path} is {config.get('kind')!r}; "
            "use the tensorese that wrote it"
        )
    if config.get("features") != features_hash():
        raise ModelError(
            f"a model reads the features it was trained with, but {path} has "
            f"{config.get('features')} and this program has {features_hash()}; train it again"
        )
    ours, theirs = Vocabulary(), config.get("vocabulary", {})
    if theirs.get("hash") != ours.hash:
        raise ModelError(
            f"a model reads the vocabulary it was trained with, but {path} has "
            f"{theirs.get('hash')} (version {theirs.get('version')}) and this program has "
            f"{ours.hash} (version {ours.version}); train it again"
        )


def _read_weights(path: Path, config: dict[str, Any]) -> dict[str, torch.Tensor]:
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
        tensors: dict[str, torch.Tensor] = load(data)
    except SafetensorError as error:
        raise ModelError(
            f"{WEIGHTS} must be a safetensors file, but {file} is not; restore it from a copy"
        ) from error
    return tensors
