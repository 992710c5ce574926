"""A run's state after an epoch, as one safetensors file: weights, statistics of norms, optimizer,
running mean.

No pickle: tensors by name, everything else as JSON in the header.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from tensorese.errors import TensoreseError


class CheckpointError(TensoreseError):
    """A checkpoint that does not belong to this run."""


class Resumable(Protocol):
    """What a training loop must have for its state to be kept."""

    optimizer: torch.optim.AdamW
    average: dict[str, Tensor]
    """Running mean of the weights."""
    step: int
    history: list[dict[str, Any]]
    best: tuple[float, int, dict[str, Tensor]] | None
    """Best validated value, its epoch and weights."""
    device: torch.device

    @property
    def network(self) -> nn.Module: ...

    def identity(self) -> dict[str, Any]:
        """What must be equal for a checkpoint to continue a run."""
        ...


def save_checkpoint(path: Path, trainer: Resumable, epoch: int) -> None:
    """Written whole or not at all."""
    tensors: dict[str, Tensor] = {}
    for name, parameter in trainer.network.named_parameters():
        tensors[f"model/{name}"] = parameter.detach()
        tensors[f"average/{name}"] = trainer.average[name]
        for key, value in trainer.optimizer.state[parameter].items():
            tensors[f"optimizer/{name}/{key}"] = torch.as_tensor(value)
    for name, buffer in trainer.network.named_buffers():
        tensors[f"buffer/{name}"] = buffer
    if trainer.best is not None:
        tensors.update({f"best/{name}": value for name, value in trainer.best[2].items()})
    header = {
        "epoch": epoch,
        "step": trainer.step,
        "history": trainer.history,
        "best": None if trainer.best is None else trainer.best[:2],
        "identity": trainer.identity(),
    }
    scratch = path.with_name(path.name + ".tmp")
    plain = {name: tensor.cpu().contiguous().clone() for name, tensor in tensors.items()}
    save_file(plain, scratch, metadata={"tensorese": json.dumps(header)})
    os.replace(scratch, path)


def load_checkpoint(path: Path, trainer: Resumable) -> int:
    """Puts the state back; returns the epoch to go on with."""
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            header = json.loads(file.metadata()["tensorese"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
        raise CheckpointError(
            f"a checkpoint is a safetensors file of this trainer, but {path} is not; "
            "remove it to start again"
        ) from error
    ours = json.loads(json.dumps(trainer.identity()))
    for key, value in ours.items():
        if header["identity"].get(key) != value:
            raise CheckpointError(
                f"a run resumes with its own settings, but {key} was "
                f"{header['identity'].get(key)} and is {value}; restore it or remove {path}"
            )
    _restore(trainer, tensors, header)
    return int(header["epoch"])


def _restore(trainer: Resumable, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    with torch.no_grad():
        for name, parameter in trainer.network.named_parameters():
            parameter.copy_(tensors[f"model/{name}"])
            trainer.average[name].copy_(tensors[f"average/{name}"])
            prefix = f"optimizer/{name}/"
            state = {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}
            if state:
                trainer.optimizer.state[parameter] = {
                    key: value
                    if key == "step" and trainer.device.type == "cpu"
                    else value.to(trainer.device)
                    for key, value in state.items()
                }
        for name, buffer in trainer.network.named_buffers():
            buffer.copy_(tensors[f"buffer/{name}"])
    trainer.step = int(header["step"])
    trainer.history = list(header["history"])
    if header["best"] is not None:
        best = {k[len("best/") :]: v for k, v in tensors.items() if k.startswith("best/")}
        moved = {name: tensor.to(trainer.device) for name, tensor in best.items()}
        trainer.best = (float(header["best"][0]), int(header["best"][1]), moved)
