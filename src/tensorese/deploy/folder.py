"""A run folder as deploy sees it: which network, for which target, and its best programs."""

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
from tensorese.records.run_entries import BestProgram, EitherWay, ways_in
from tensorese.records.run_folder import INPUTS, LIBRARY, RunFolder
from tensorese.records.user_store import Known, read_known
from tensorese.workloads.choice import Choice
from tensorese.workloads.either_way import choice_of


@dataclass(frozen=True, kw_only=True)
class TunedRun:
    """What building the network of a tuning run needs to know, checked."""

    path: Path
    model: str
    network: str
    target: str
    platform: str
    tasks: tuple[Mapping[str, Any], ...]
    best: Mapping[str, BestProgram]
    """By workload id."""
    prepack: bool = True
    """Whether its tasks leave the order of constant weights to the schedule."""
    winograd: bool = False
    """Whether convolutions may go by Winograd's algorithm; runs of before did not."""
    attention: bool = False
    """Whether attention may be one kernel, likewise."""
    ways: tuple[EitherWay, ...] = ()
    """Of what the run had to decide on."""
    judged_for: str = ""
    """The platform that the model which chose unmeasured programs speaks for."""
    device: str = ""
    """Where its programs were timed, if not on the machine that tuned it."""
    source: str = ""
    """The model with all its shapes, where `model` is one of several."""
    inputs: Mapping[str, Array] = field(default_factory=dict)
    """Given by the user to verify with, by name."""
    known: Mapping[str, Known] = field(default_factory=dict)
    """What other runs knew of its tasks when it began, by workload id."""

    @property
    def kind(self) -> str:
        return str(json.loads(self.target)["kind"])

    @property
    def choices(self) -> dict[str, bool | Choice]:
        """How it computes what may be computed in several ways, as `prepare` takes it."""
        choice = choice_of(self.ways)
        return {
            "winograd": self.winograd and choice,
            "attention": self.attention and choice,
        }

    @property
    def library(self) -> Path:
        return self.path / LIBRARY


def read_run(path: str | os.PathLike[str]) -> TunedRun:
    folder = RunFolder.read(Path(path))
    head = folder.head
    try:
        config = dict(head.get("config") or {})
        return TunedRun(
            path=folder.path,
            model=folder.model,
            network=str(head["network"]),
            target=str(head["target"]),
            platform=str(head["platform"]),
            tasks=tuple(head["tasks"]),
            best=folder.best(),
            prepack=bool(config.get("prepack", True)),
            winograd=bool(config.get("winograd", False)),
            attention=bool(config.get("attention", False)),
            ways=ways_in(config),
            judged_for=str(config.get("judged_for", "")),
            device=str(config.get("device", "")),
            known=read_known(folder),
            inputs=read_inputs(folder.path / INPUTS) if (folder.path / INPUTS).exists() else {},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DeployError(
            f"{folder.path} must be a run folder of this version, but its run.json lacks or "
            f"garbles {error}; tune into a new folder"
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
