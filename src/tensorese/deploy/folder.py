"""A run folder as deploy reads it: which network, for which target, and its best programs."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tensorese.deploy.arrays import Array
from tensorese.deploy.errors import DeployError
from tensorese.records.nouns import Program, Sketch, Workload

LIBRARY = "library.so"
CERTIFICATE = "certificate.json"
BENCH = "bench.json"
DATABASE = "database"
MODEL = "model.pt2"
"""A program that was tuned from memory lies beside its run; others are read where they are."""
INPUTS = "given.npz"
"""What the user gave to verify with, by name."""


@dataclass(frozen=True, kw_only=True)
class Best:
    """The program chosen for one task, and what it was measured at."""

    sketch: Sketch
    decisions: tuple[int, ...]
    tail: str
    latency: float
    name: str
    weight: int
    flops: float

    def program(self, workload: Workload) -> Program:
        return Program(
            workload=workload, sketch=self.sketch, decisions=self.decisions, tail=self.tail
        )


@dataclass(frozen=True, kw_only=True)
class Run:
    """`run.json` and `best.json` of a tuning run, checked."""

    path: Path
    model: str
    network: str
    target: str
    platform: str
    tasks: tuple[Mapping[str, Any], ...]
    best: Mapping[str, Best]
    """By workload id."""
    prepack: bool = True
    """Whether its tasks leave the order of constant weights to the schedule."""
    winograd: bool = False
    """Whether convolutions may go by Winograd's algorithm; runs of before did not."""
    inputs: Mapping[str, Array] = field(default_factory=dict)
    """Given by the user to verify with, by name."""

    @property
    def kind(self) -> str:
        return str(json.loads(self.target)["kind"])

    @property
    def library(self) -> Path:
        return self.path / LIBRARY


def read_run(path: str | os.PathLike[str]) -> Run:
    folder = Path(path)
    head = read_json(folder / "run.json", "a run folder is what `tensorese tune` writes")
    found = read_json(folder / "best.json", "tune first") if _has_best(folder) else {}
    try:
        config = dict(head.get("config") or {})
        return Run(
            path=folder,
            model=str(folder / MODEL) if (folder / MODEL).exists() else str(head["model"]),
            network=str(head["network"]),
            target=str(head["target"]),
            platform=str(head["platform"]),
            tasks=tuple(head["tasks"]),
            best={workload: _best(row) for workload, row in found.items()},
            prepack=bool(config.get("prepack", True)),
            winograd=bool(config.get("winograd", False)),
            inputs=read_inputs(folder / INPUTS) if (folder / INPUTS).exists() else {},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DeployError(
            f"{folder} must be a run folder of this version, but its run.json or best.json "
            f"lacks or garbles {error}; tune into a new folder"
        ) from None


def read_inputs(path: Path) -> dict[str, Array]:
    """The arrays of a .npz file by name; one that needs a pickle is refused."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, zipfile.BadZipFile, AttributeError) as error:
        raise DeployError(
            f"{path} must be a .npz file of plain arrays by input name, but it is not: {error}; "
            "write it with numpy.savez(path, name=array)"
        ) from None


def _has_best(folder: Path) -> bool:
    """A run that was interrupted before anything succeeded has none: all tasks stay untuned."""
    return (folder / "best.json").exists()


def _best(row: Mapping[str, Any]) -> Best:
    sketch = row["sketch"]
    slots = tuple((int(at), int(length)) for at, length in sketch["slots"])
    return Best(
        sketch=Sketch(dialect=str(sketch["dialect"]), body=str(sketch["body"]), slots=slots),
        decisions=tuple(int(value) for value in row["decisions"]),
        tail=str(row.get("tail", "")),
        latency=float(row["latency"]),
        name=str(row["name"]),
        weight=int(row["weight"]),
        flops=float(row["flops"]),
    )


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except OSError as error:
        raise DeployError(f"{path} must be readable ({error.strerror}); {remedy}") from None
    except ValueError:
        raise DeployError(f"{path} must be JSON, but it is damaged; {remedy}") from None
    if not isinstance(value, dict):
        raise DeployError(f"{path} must hold a JSON object; {remedy}")
    return value


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Whole or not at all: a reader never sees half a file."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(json.dumps(value, indent=1) + "\n")
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise DeployError(f"{path} cannot be written: {error.strerror}") from None
