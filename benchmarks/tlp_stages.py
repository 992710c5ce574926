"""What each stage of the TLP tables runs.

`BASE` is where the sweep starts; after `freeze` it is what `tlp_frozen.json` says.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tlp_runs import PLATFORMS, Job

ANSOR = PLATFORMS[:3]
BASE: dict[str, Any] = {
    "trunk": {"width": 128, "feed": 2, "layers": 1, "dropout": 0.1, "noise": 0.3},
    "train": {
        "epochs": 16,
        "loss": "both",
        "lr": 1e-3,
        "weight_decay": 1e-2,
        "regret_weight": 0.0,
    },
    "groups": {"size": 64, "per_batch": 16},
}
FROZEN = Path(__file__).resolve().parent / "tlp_frozen.json"
MTL_EPOCHS = 6
MTL_PHYSICS = 8
MTL_PLATFORMS = list(ANSOR)


def thaw(path: Path = FROZEN) -> None:
    """From here on `BASE` is the frozen configuration, if there is one."""
    if path.exists():
        frozen = json.loads(path.read_text())
        BASE.clear()
        BASE.update(frozen["settings"])
        for name in ("trees", "tree_votes"):  # joined by `tlp_mix`; jobs train networks
            BASE.pop(name, None)
        MTL_PLATFORMS[:] = frozen.get("mtl_platforms", ANSOR)


def _mtl() -> dict[str, Any]:
    """The same recipe on three platforms' records: fewer epochs, as many steps."""
    return {**BASE, "train": {**BASE["train"], "epochs": MTL_EPOCHS}}


def merged(settings: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy with the changes made, one level down where both sides are tables."""
    out = {k: dict(v) if isinstance(v, dict) else v for k, v in settings.items()}
    for key, value in changes.items():
        out[key] = {**out.get(key, {}), **value} if isinstance(value, dict) else value
    return out


def _with(**changes: dict[str, Any]) -> dict[str, Any]:
    return merged(BASE, changes)


EPOCHS = {"k80": 16, "v100": 10, "mi50": 16, "a100": 40}
"""About 950 steps each (A100: 720)."""


def for_platform(platform: str, settings: dict[str, Any]) -> dict[str, Any]:
    scale = settings.get("scale", 1.0)
    epochs = round(EPOCHS[platform] * scale)
    kept = {k: v for k, v in settings.items() if k != "scale"}
    return {**kept, "train": {**settings["train"], "epochs": epochs}}


def sweep() -> list[Job]:
    """Choices on folds 0-2, in order of what we most want to know."""
    jobs = []
    for system, settings in variants().items():
        if system.startswith("mtl"):
            where = {"platforms": ANSOR, "seeds": (0, 1)}
            jobs.append(Job(table="sweep", system=system, **where, **settings))
            continue
        for platform in ("k80", "mi50", "a100", "v100"):
            where = {"platforms": (platform,), "seeds": (0, 1)}
            jobs.append(
                Job(table="sweep", system=system, **where, **for_platform(platform, settings))
            )
    return jobs


def variants() -> dict[str, dict[str, Any]]:
    """One change at a time from `BASE`."""
    wide = {"size": 256, "per_batch": 4}
    return {
        "base": _with(),
        "regret 10": _with(train={"regret_weight": 10.0}),
        "no physics": _with(spec={"physics": False}),
        "physics alone": _with(trunk={"style": "physics"}),
        "groups of 256, regret 10": _with(groups=wide, train={"regret_weight": 10.0}),
        "width 64": _with(trunk={"width": 64}),
        "no context": _with(spec={"context": False}),
        "no rows attend": _with(trunk={"layers": 0}),
        "mtl base": _mtl(),
        "mse": _with(train={"loss": "mse"}),
        "dropout 0.3": _with(trunk={"dropout": 0.3}),
        "physics noise 0.4": _with(trunk={"physics_noise": 0.4}),
        "long": {**_with(), "scale": 2.0},
        "noise 0": _with(trunk={"noise": 0.0, "physics_noise": 0.0}),
        "weight decay 0.1": _with(train={"weight_decay": 0.1}),
        "short": {**_with(), "scale": 0.5},
        "mse 50": _with(train={"mse_weight": 50.0}),
    }


def mixes() -> dict[str, dict[str, Any]]:
    """Several networks in one model, as many as the wanted speed allows."""
    wide = {"groups": {"size": 256, "per_batch": 4}, "train": {"regret_weight": 10.0}}
    pair = {"members": 2, "physics_members": 2}
    return {
        "2 of 64 + 2, wide": {**_with(trunk={"width": 64}, **wide), **pair},
        "2 of 64 + 2": {**_with(trunk={"width": 64}), **pair},
        "4 physics, wide": {**_with(trunk={"style": "physics"}, **wide), "members": 4},
        "1 of 96 + 2, wide": {**_with(trunk={"width": 96}, **wide), "physics_members": 2},
        "2 of 64 + 4, wide": {
            **_with(trunk={"width": 64}, **wide),
            **{"members": 2, "physics_members": 4},
        },
        "1 of 128, wide": _with(**wide),
    }


def members() -> list[Job]:
    """The second choice on folds 0-2: which networks together, and how much doubt."""
    return [
        Job(
            table="members",
            system=system,
            platforms=(platform,),
            seeds=(0,),
            doubts=(0.5, 1.0) if system != "1 of 128, wide" else (),
            **for_platform(platform, settings),
        )
        for system, settings in mixes().items()
        for platform in ("k80", "mi50", "a100", "v100")
    ]


def final() -> list[Job]:
    """The frozen recipe: 5 folds x 3 seeds (MTL: 2), every platform.

    Trains and banks the held-out scores of every network; `tlp_bank.py` judges them.
    """
    every = {"folds": (0, 1, 2, 3, 4), "seeds": (0, 1, 2)}
    few = {"folds": (0, 1, 2, 3, 4), "seeds": (0, 1)}
    mtl = {**_mtl(), "physics_members": MTL_PHYSICS}
    mtl.pop("scale", None)
    jobs = [
        Job(
            table="main",
            system="tlp",
            platforms=(platform,),
            bank=f"tlp_{platform}",
            **every,
            **for_platform(platform, BASE),
        )
        for platform in ("v100", "k80", "mi50", "a100")
    ]
    known = tuple(MTL_PLATFORMS)
    jobs.append(Job(table="main", system="mtl-tlp", platforms=known, bank="mtl", **few, **mtl))
    return jobs


def paper() -> list[Job]:
    """The published preset; nothing it sees has changed since `results/first` (V100)."""
    one = {"folds": (0, 1, 2, 3, 4), "seeds": (0,)}
    return [
        Job(table="main", system="paper", platforms=(platform,), brief=True, **one, **PAPER)
        for platform in ("k80", "mi50", "a100")
    ]


PAPER: dict[str, Any] = {
    "trunk": {"style": "paper", "width": 256, "heads": 8, "dropout": 0.0},
    "spec": {"preset": "paper"},
    "train": {
        "epochs": 25,
        "loss": "rank",
        "lr": 7e-4,
        "weight_decay": 1e-6,
        "clip": 0.5,
        "failed_weight": 0.0,
        "average": 0.0,
        "regret_weight": 0.0,
        "bf16": False,
    },
    "groups": {"size": 1024, "per_batch": 1, "by_task": False},
}


def smoke() -> list[Job]:
    """Seconds long: does every kind of run work here?"""
    quick = {"epochs": 1}
    kinds = {
        "live": {"trunk": {"width": 32}},
        "all": {"trunk": {"width": 32, "style": "all"}},
        "lstm": {"trunk": {"width": 32, "style": "all", "backbone": "lstm"}},
        "paper": {"trunk": {"style": "paper", "width": 256}, "spec": {"preset": "paper"}},
    }
    jobs = [
        Job(table="smoke", system=name, platforms=("a100",), folds=(0, 1), train=quick, **kind)
        for name, kind in kinds.items()
    ]
    few = {"platforms": ANSOR, "judged": ("k80",), "folds": (0,), "train": quick, "share": 0.05}
    live = kinds["live"]
    jobs.append(Job(table="smoke", system="mtl", labels=500, **few, **live))
    jobs.append(Job(table="smoke", system="tuned", labels=500, fine_tune=True, **few, **live))
    return jobs
