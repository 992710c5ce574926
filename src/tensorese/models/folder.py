"""A model on disk: a folder with `model.safetensors`, `config.json` and `card.md`.

What is read without torch is in `disk`.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save_file

from tensorese import __version__
from tensorese.features.matrix import MatrixSpec
from tensorese.features.physics import features_hash as features_hash
from tensorese.language import Vocabulary
from tensorese.models.disk import (
    CARD,
    CONFIG,
    FORMAT,
    FORMAT_VERSION,
    WEIGHTS,
    ModelError,
    not_one_model,
    read_bytes,
    read_card,
    read_config,
)
from tensorese.models.disk import Card as Card
from tensorese.models.mtl_tlp import MTLTLP
from tensorese.models.tlp import TLP, TLPConfig
from tensorese.models.tree_votes import TreeVotes
from tensorese.models.trees import add_trees, read_forests
from tensorese.models.trunk import TrunkConfig

KINDS: dict[str, type[TLP]] = {"tlp": TLP, "mtl-tlp": MTLTLP}


@dataclass(frozen=True, kw_only=True)
class SavedModel:
    model: TLP
    card: Card


def save_model(
    folder: str | os.PathLike[str], model: TLP, card: Card, *, half: bool = False
) -> Path:
    """Weights first, `config.json` last: a folder with a config is complete.

    `half` keeps the weights in 16 bits, which moves a score by about a thousandth.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    kept = torch.float16 if half else torch.float32
    state = {name: t.detach().cpu().to(kept).contiguous() for name, t in model.state_dict().items()}
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
        "jitter": model.config.jitter,
        "features": features_hash(model.config.spec.machine),
        "vocabulary": {"version": vocabulary.version, "hash": vocabulary.hash},
        "weights_sha256": hashlib.sha256((path / WEIGHTS).read_bytes()).hexdigest(),
        "card": asdict(card),
    }
    (path / CARD).write_text(_card_text(model, card))
    scratch = path / f".{CONFIG}"
    scratch.write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    os.replace(scratch, path / CONFIG)
    if model.trees is not None:
        add_trees(path, model.trees.forests, model.trees.votes)
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
    config = read_config(path)
    weights = _read_weights(path, config)
    try:
        model = KINDS[config["kind"]](model_shape(config), tuple(config["platforms"]))
        model.load_state_dict(weights)
        model.trees = _read_trees(path, config)
        card = read_card(config)
    except (TypeError, KeyError, RuntimeError, ValueError) as error:
        raise not_one_model(path, error) from error
    return SavedModel(model=model.to(device).eval(), card=card)


def _read_trees(path: Path, config: dict[str, Any]) -> TreeVotes | None:
    forests = read_forests(path, config)
    networks = int(config["members"]) + int(config["physics_members"])
    return TreeVotes(forests, int(config.get("tree_votes", networks))) if forests else None


def model_shape(config: dict[str, Any]) -> TLPConfig:
    return TLPConfig(
        trunk=TrunkConfig(**config["trunk"]),
        spec=MatrixSpec(**config["matrix"]),
        members=config["members"],
        physics_members=config["physics_members"],
        doubt=config["doubt"],
        jitter=config.get("jitter", 0.0),
    )


def _read_weights(path: Path, config: dict[str, Any]) -> dict[str, torch.Tensor]:
    data = read_bytes(path, config)
    try:
        tensors: dict[str, torch.Tensor] = load(data)
    except SafetensorError as error:
        raise ModelError(
            f"{WEIGHTS} must be a safetensors file, but {path / WEIGHTS} is not; "
            "restore it from a copy"
        ) from error
    return tensors
