"""What each stage of the TLP tables runs. `BASE` is the frozen configuration after the sweep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tlp_runs import PLATFORMS, Job

ANSOR = PLATFORMS[:3]
BASE: dict[str, Any] = {
    "trunk": {"width": 128, "layers": 1, "dropout": 0.1},
    "train": {"epochs": 25, "loss": "both", "lr": 1e-3, "weight_decay": 1e-2},
    "groups": {"size": 64, "per_batch": 16},
}


def _with(**changes: dict[str, Any]) -> dict[str, Any]:
    merged = {key: dict(value) for key, value in BASE.items()}
    for key, value in changes.items():
        merged[key] = {**merged.get(key, {}), **value}
    return merged


def sweep() -> list[Job]:
    """Choices on folds 0-2; three platforms, in order of what we most want to know."""
    variants: dict[str, dict[str, Any]] = {
        "base": _with(),
        "dropout 0.3": _with(trunk={"dropout": 0.3}),
        "loss rank": _with(train={"loss": "rank"}),
        "no implied": _with(spec={"implied": False}),
        "layers 2": _with(trunk={"layers": 2}),
        "all rows": _with(trunk={"style": "all"}),
        "no context": _with(spec={"context": False}),
        "no positions": _with(trunk={"positions": False}),
        "lr 3e-3": _with(train={"lr": 3e-3}),
        "weight decay 0.1": _with(train={"weight_decay": 0.1}),
        "epochs 60": _with(train={"epochs": 60}),
        "width 256": _with(trunk={"width": 256}),
        "width 64": _with(trunk={"width": 64}),
        "groups of 128": _with(groups={"size": 128, "per_batch": 8}),
        "loss mse": _with(train={"loss": "mse"}),
        "failed 0": _with(train={"failed_weight": 0.0}),
    }
    jobs = []
    for system, settings in variants.items():
        for platform in ("k80", "a100", "v100"):
            jobs.append(
                Job(table="sweep", system=system, platforms=(platform,), seeds=(0, 1), **settings)
            )
        if system in ("base", "dropout 0.3"):
            mtl = {**settings, "train": {**settings["train"], "epochs": 12}}
            jobs.append(
                Job(table="sweep", system=f"mtl {system}", platforms=ANSOR, seeds=(0,), **mtl)
            )
    return jobs


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


STAGES: dict[str, Callable[[], list[Job]]] = {"smoke": smoke, "sweep": sweep}
