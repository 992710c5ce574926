"""What each stage of the TLP tables runs.

`BASE` is where the sweep starts; after `freeze` it is what `tlp_frozen.json` says.
"""

from __future__ import annotations

import json
from collections.abc import Callable
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


def thaw(path: Path = FROZEN) -> None:
    """From here on `BASE` is the frozen configuration, if there is one."""
    if path.exists():
        BASE.clear()
        BASE.update(json.loads(path.read_text())["settings"])


def _mtl() -> dict[str, Any]:
    """The same recipe on three platforms' records: fewer epochs, as many steps."""
    return {**BASE, "train": {**BASE["train"], "epochs": MTL_EPOCHS}}


def _with(**changes: dict[str, Any]) -> dict[str, Any]:
    merged = {k: dict(v) if isinstance(v, dict) else v for k, v in BASE.items()}
    for key, value in changes.items():
        merged[key] = {**merged.get(key, {}), **value}
    return merged


EPOCHS = {"k80": 16, "v100": 10, "mi50": 16, "a100": 40}
"""About 950 steps each (A100: 720)."""


def _for(platform: str, settings: dict[str, Any]) -> dict[str, Any]:
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
            jobs.append(Job(table="sweep", system=system, **where, **_for(platform, settings)))
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
            **_for(platform, settings),
        )
        for system, settings in mixes().items()
        for platform in ("k80", "mi50", "a100", "v100")
    ]


def final() -> list[Job]:
    """The frozen configuration: 5 folds x 3 seeds, every platform; beside it the paper's preset."""
    every = {"folds": (0, 1, 2, 3, 4), "seeds": (0, 1, 2)}
    jobs = [
        Job(table="main", system="tlp", platforms=(platform,), **every, **_for(platform, BASE))
        for platform in ("v100", "k80", "mi50", "a100")
    ]
    few = {"folds": (0, 1, 2, 3, 4), "seeds": (0, 1)}
    jobs.append(Job(table="main", system="mtl-tlp", platforms=ANSOR, **few, **_mtl()))
    return jobs


def paper() -> list[Job]:
    """The published preset; nothing it sees has changed since `results/first`."""
    one = {"folds": (0, 1, 2, 3, 4), "seeds": (0,)}
    return [
        Job(table="main", system="paper", platforms=(platform,), **one, **PAPER)
        for platform in ANSOR
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


def ablation() -> list[Job]:
    """V100, fold 0, 3 seeds: from the published preset to ours, then one change at a time."""
    where = {"platforms": ("v100",), "folds": (0,), "seeds": (0, 1, 2)}
    return [
        Job(table="ablation", system=name, **where, **_for("v100", settings))
        for name, settings in {**_from_paper(), **_singles()}.items()
    ]


def _from_paper() -> dict[str, dict[str, Any]]:
    """Each line keeps the changes of those before it."""
    grouped = {"groups": {"size": 64, "per_batch": 16}}
    spec = {"implied": False, "context": False, "physics": False, "recorded": True}
    trunk = {"width": 128, "noise": 0.0, "physics_noise": 0.0, "dropout": 0.0, "style": "all"}
    plain = {**trunk, "mask": False, "positions": False}
    old = {**PAPER["train"], "bf16": None}
    rank = {"loss": "rank", "lr": 1e-3, "weight_decay": 1e-2, "regret_weight": 0.0}
    both = {**rank, "loss": "both"}
    ours = {**trunk, "dropout": 0.1}
    live = {**ours, "style": "live"}
    noisy = {**live, "noise": 0.3, "physics_noise": 0.1}
    unread = {"physics": False, "recorded": True}

    def line(trunk: dict[str, Any], spec: dict[str, Any], train: dict[str, Any]) -> dict[str, Any]:
        return {"trunk": trunk, "spec": spec, "train": train, **grouped}

    return {
        "0 paper": PAPER,
        "1 + batches by task": {**PAPER, **grouped},
        "2 + log2 numbers, norm": line(plain, spec, old),
        "3 + mask, positions": line(trunk, spec, old),
        "4 + our recipe": line(ours, spec, rank),
        "5 + implied extents": line(ours, {**unread, "context": False}, rank),
        "6 + shapes of the task": line(ours, unread, rank),
        "7 + squared error": line(ours, unread, both),
        "8 + live rows": line(live, unread, both),
        "9 + stale extents hidden": line(live, {"physics": False}, both),
        "10 + physical features": line(live, {}, both),
        "11 + noise on the numbers": line(noisy, {}, both),
        "12 ours (frozen)": _with(),
    }


def _singles() -> dict[str, dict[str, Any]]:
    return {
        "loss: attention, rank": _with(train={"loss": "rank"}),
        "loss: attention, mse": _with(train={"loss": "mse"}),
        "no regret": _with(train={"regret_weight": 0.0}),
        "whole primitives": _with(trunk={"style": "all", "whole": True}),
        "data 10 %": {**_with(), "share": 0.1, "steps": 800},
        "data 30 %": {**_with(), "share": 0.3, "steps": 800},
        "width 32": _with(trunk={"width": 32}),
        "width 128": _with(trunk={"width": 128}),
        "heads 1": _with(trunk={"heads": 1}),
        "heads 8": _with(trunk={"heads": 8}),
        "layers 0": _with(trunk={"layers": 0}),
        "layers 2": _with(trunk={"layers": 2}),
        "blocks 0": _with(trunk={"blocks": 0}),
        "blocks 4": _with(trunk={"blocks": 4}),
        "crop: 8 numbers": _with(spec={"numbers": 8}),
        "crop: 20 rows": _with(spec={"length": 20}),
        "crop: 30 rows": _with(spec={"length": 30}),
        "no failed class": _with(train={"failed_weight": 0.0}),
        "no running mean": _with(train={"average": 0.0}),
        "mixed groups": _with(groups={"by_task": False, "size": 1024, "per_batch": 1}),
        "loss: lstm, rank": _with(
            trunk={"style": "all", "backbone": "lstm"}, train={"loss": "rank"}
        ),
        "loss: lstm, mse": _with(trunk={"style": "all", "backbone": "lstm"}, train={"loss": "mse"}),
    }


def mtl() -> list[Job]:
    """Few labels of the target: alone, with one other, with both, and fine-tuned from both."""
    jobs = []
    for labels in (2000, 500, 8000):
        for system in ("alone", "+ both", "fine-tuned", "+ first", "+ second"):
            jobs += [_few_labels(labels, system, target) for target in ANSOR]
    return jobs


def _few_labels(labels: int, system: str, target: str) -> Job:
    others = tuple(p for p in ANSOR if p != target)
    helpers = {"alone": (), "+ first": others[:1], "+ second": others[1:]}.get(system, others)
    single = not helpers
    return Job(
        table=f"mtl {labels}",
        system=f"+ {helpers[0]}" if len(helpers) == 1 else system,
        platforms=(target, *helpers),
        judged=(target,),
        folds=(0, 1),
        seeds=(0, 1, 2),
        labels=labels,
        fine_tune=system == "fine-tuned",
        steps=800 if single else 0,
        **(BASE if single else _mtl()),
    )


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


STAGES: dict[str, Callable[[], list[Job]]] = {
    "smoke": smoke,
    "sweep": sweep,
    "members": members,
    "paper": paper,
    "final": final,
    "ablation": ablation,
    "mtl": mtl,
}
