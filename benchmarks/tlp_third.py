"""The third round of choices: a recipe for the physical networks, on folds 0-2 only.

They train in seconds, so many changes can be tried; what wins there, by the same rule as
before, trains the whole mix of the final table. `freeze3` may join several changes: each that
gains `JOIN` or more, if they touch different settings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tlp_runs import PLATFORMS, Job
from tlp_stages import BASE, MTL_EPOCHS, for_platform, merged

TABLE = "sweep3"
JOIN = 0.003
JITTERS = (0.4, 0.8, 1.2)
FOLDS = (0, 1, 2)
TRUNKS, PHYSICS = 1, 12
"""Networks in the final table's models; how many of them a model needs is chosen after."""


def changes() -> dict[str, dict[str, Any]]:
    """One at a time from the frozen recipe; `scale` is on the steps."""
    return {
        "base": {},
        "best of 5": {"train": {"regret_weight": 5.0, "regret5_weight": 10.0}},
        "label power 2": {"train": {"label_power": 2.0}},
        "knots 6": {"trunk": {"knots": 6}},
        "noise 0.25": {"trunk": {"physics_noise": 0.25}},
        "first 10 places": {"train": {"rank_top": 10}},
        "dropout 0.3": {"trunk": {"dropout": 0.3}},
        "long": {"scale": 2.0},
        "best of 5 alone": {"train": {"regret_weight": 0.0, "regret5_weight": 20.0}},
        "label power 0.5": {"train": {"label_power": 0.5}},
        "blocks 4": {"trunk": {"blocks": 4}},
        "weight decay 0.1": {"train": {"weight_decay": 0.1}},
        "lr 3e-3": {"train": {"lr": 3e-3}},
        "regret 30": {"train": {"regret_weight": 30.0}},
        "short": {"scale": 0.5},
        "no squared error": {"train": {"loss": "rank"}},
    }


def _job(system: str, platforms: tuple[str, ...], change: dict[str, Any]) -> Job:
    """Four physical networks a model, two seeds."""
    settings = merged({**BASE, "members": 4, "physics_members": 0}, change)
    settings = merged(settings, {"trunk": {"style": "physics", "width": 128}})
    if len(platforms) == 1:
        settings = for_platform(platforms[0], settings)
    else:
        settings = merged(settings, {"train": {"epochs": MTL_EPOCHS}})
    return Job(
        table=TABLE,
        system=system,
        platforms=platforms,
        folds=FOLDS,
        seeds=(0, 1),
        brief=True,
        jitters=JITTERS,
        **settings,
    )


def sweep3() -> list[Job]:
    jobs = [_job("mtl of 4", PLATFORMS, {}), _job("mtl of 3", PLATFORMS[:3], {})]
    for system, change in changes().items():
        jobs += [_job(system, (platform,), change) for platform in PLATFORMS]
    return jobs


def rule(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """By system and platform: the mean over tasks of top-1, top-5 and the steady figure."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row["fold"] not in FOLDS:
            continue
        for f in row["tasks"].values():
            mine = found.setdefault(row["system"], {}).setdefault(row["platform"], [])
            mine.append((f[1] / f[2] + f[1] / f[3] + f[8]) / 3)
    return {s: {p: float(np.mean(v)) for p, v in w.items()} for s, w in found.items()}


def at_best(means: dict[str, float]) -> dict[str, float]:
    """Every change with the jitter that suits it best."""
    found: dict[str, float] = {}
    for name, value in means.items():
        system = name.partition(", jitter ")[0]
        found[system] = max(found.get(system, 0.0), value)
    return found


def joined(means: dict[str, float]) -> tuple[list[str], dict[str, Any]]:
    """The best change, then every other that gains enough and touches nothing touched."""
    known = changes()
    means = at_best(means)
    order = sorted((s for s in known if s in means), key=lambda s: -means[s])
    taken: list[str] = []
    change: dict[str, Any] = {}
    for system in order:
        if means[system] < means["base"] + JOIN or _touches(change) & _touches(known[system]):
            continue
        taken.append(system)
        change = merged(change, known[system])
    return taken, change


def _touches(change: dict[str, Any]) -> set[str]:
    return {
        key
        for name, value in change.items()
        for key in (value if isinstance(value, dict) else (name,))
    }


def freeze3(rows: list[dict[str, Any]], path: Path) -> dict[str, Any]:
    """Writes the recipe for the final table's networks and says what it came from."""
    scores = rule(r for r in rows if r["table"] == TABLE)
    means = {
        s: float(np.mean(list(w.values()))) for s, w in scores.items() if len(w) == len(PLATFORMS)
    }
    taken, change = joined(means)
    ansor = at_best(
        {
            s: float(np.mean([w[p] for p in PLATFORMS[:3]]))
            for s, w in scores.items()
            if s.startswith("mtl")
        }
    )
    four = ansor.get("mtl of 4", 0.0) >= ansor.get("mtl of 3", 0.0) - 0.002
    settings = merged(BASE, change)
    settings |= {"members": TRUNKS, "physics_members": PHYSICS, "doubt": 0.0}
    frozen = {
        "chosen": " + ".join(taken) or "base",
        "folds": list(FOLDS),
        "settings": settings,
        "mtl_platforms": list(PLATFORMS if four else PLATFORMS[:3]),
        "means": means,
        "platform_means": scores,
    }
    path.write_text(json.dumps(frozen, indent=1) + "\n")
    return frozen
