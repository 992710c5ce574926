"""Ablations: from the published preset to ours change by change, single changes, few labels.

V100, one fixed fold, 3 seeds; every line takes as many epochs. Single changes are made to one
trunk that reads the sentence alone, where they can show: beside a dozen physical networks
nothing of a trunk does.
"""

from __future__ import annotations

from typing import Any

from tlp_runs import PLATFORMS, Job
from tlp_stages import BASE, PAPER, for_platform, merged

ANSOR = PLATFORMS[:3]
JITTER = 0.8
SCALE = 0.6
"""Six epochs of V100's records, about 600 steps."""
NARROW = {"size": 64, "per_batch": 16}
TRUNK: dict[str, Any] = {"width": 64, "feed": 2, "layers": 1, "dropout": 0.1}
RANK: dict[str, Any] = {"loss": "rank", "lr": 1e-3, "weight_decay": 1e-2, "regret_weight": 0.0}


def ablation() -> list[Job]:
    where = {"platforms": ("v100",), "folds": (0,), "seeds": (0, 1, 2), "jitters": (JITTER,)}
    # The LSTMs train one by one and leave the device half idle: first, beside everything.
    lines = {**lstm(), **chain(), **singles()}
    return [
        Job(table="ablation", system=name, **where, **for_platform("v100", settings))
        for name, settings in lines.items()
    ]


def ablation_cpu() -> list[Job]:
    """The chain where no device is at hand: one epoch, batches of half the size, 2 seeds.

    Without the published network itself, whose rows (10 epochs and more) came from a device.
    """
    where = {"platforms": ("v100",), "folds": (0,), "seeds": (0, 1), "jitters": (0.4,)}
    jobs = []
    for name, settings in chain().items():
        if settings["trunk"].get("style") == "paper":
            continue
        groups = {**settings["groups"], "per_batch": settings["groups"]["per_batch"] // 2}
        small = {**settings, "groups": groups, "scale": 0.1}
        small |= {"physics_members": 4} if settings.get("physics_members") else {}
        job = for_platform("v100", small)
        jobs.append(Job(table="ablation, 1 epoch", system=name, brief=True, **where, **job))
    return jobs


def _line(trunk: Any, spec: Any, train: Any, groups: Any = NARROW, **more: Any) -> dict[str, Any]:
    fixed = {"trunk": trunk, "spec": spec, "train": train, "groups": groups, "scale": SCALE}
    return {**fixed, **more}


def chain() -> dict[str, dict[str, Any]]:
    """Each line keeps the changes of those before it."""
    bare = {"implied": False, "context": False, "physics": False, "recorded": True}
    still = {**TRUNK, "noise": 0.0, "physics_noise": 0.0, "style": "all"}
    plain = {**still, "dropout": 0.0, "mask": False, "positions": False}
    old = {**PAPER["train"], "bf16": None}
    raw = {**bare, "log": False, "fill": False}
    told = {"physics": False, "recorded": True}
    hidden = {"physics": False}
    live = {**still, "style": "live"}
    noisy = {**live, "noise": 0.3, "physics_noise": 0.1}
    both = {**RANK, "loss": "both"}
    regret = {**both, "regret_weight": 10.0}
    wide = {"size": 256, "per_batch": 4}
    return {
        "0 as published": {**PAPER, "scale": SCALE},
        "1 + batches by task": {**PAPER, "groups": NARROW, "scale": SCALE},
        "2 + whole rows, names apart, norm": _line(plain, raw, old),
        "3 + mask, positions": _line({**plain, "mask": True, "positions": True}, raw, old),
        "4 + task row": _line(
            {**plain, "mask": True, "positions": True}, {**raw, "context": True}, old
        ),
        "5 + recorded extents hidden": _line(
            {**plain, "mask": True, "positions": True},
            {**raw, "context": True, "recorded": False},
            old,
        ),
        "6 + log2 numbers": _line(
            {**plain, "mask": True, "positions": True}, {**hidden, "implied": False}, old
        ),
        "7 + implied extents": _line({**plain, "mask": True, "positions": True}, hidden, old),
        "8 + our recipe": _line(still, hidden, RANK),
        "9 + live trunk": _line(live, hidden, RANK),
        "10 + squared error": _line(live, hidden, both),
        "11 + noise on the numbers": _line(noisy, hidden, both),
        "12 + expected regret, groups of 256": _line(noisy, hidden, regret, wide),
        "13 + physical features": _line(noisy, {}, regret, wide),
        "14 ours: the mix": {**BASE, "scale": SCALE},
        "(12 with recorded extents)": _line(noisy, told, regret, wide),
    }


def _alone() -> dict[str, Any]:
    """One trunk of the frozen recipe that sees no physical features."""
    settings = {**BASE, "members": 1, "physics_members": 0, "scale": SCALE}
    return merged(settings, {"spec": {"physics": False}})


def singles() -> dict[str, dict[str, Any]]:
    base = _alone()
    mix = {**BASE, "scale": SCALE}

    def one(**change: Any) -> dict[str, Any]:
        return merged(base, change)

    return {
        "trunk alone": base,
        "loss: attention, rank": one(train={"loss": "rank", "regret_weight": 0.0}),
        "loss: attention, mse": one(train={"loss": "mse", "regret_weight": 0.0}),
        "whole primitives": one(trunk={"style": "all", "whole": True}),
        "crop: 30 rows": one(spec={"length": 30}),
        "crop: 20 rows": one(spec={"length": 20}),
        "crop: 8 numbers": one(spec={"numbers": 8}),
        "mix, 10 % of the data": {**mix, "share": 0.1, "steps": 600},
        "mix, 30 % of the data": {**mix, "share": 0.3, "steps": 600},
        "width 32": one(trunk={"width": 32}),
        "width 128": one(trunk={"width": 128}),
        "width 256": one(trunk={"width": 256}),
        "heads 1": one(trunk={"heads": 1}),
        "heads 8": one(trunk={"heads": 8}),
        "layers 0": one(trunk={"layers": 0}),
        "layers 2": one(trunk={"layers": 2}),
        "blocks 0": one(trunk={"blocks": 0}),
        "blocks 4": one(trunk={"blocks": 4}),
        "no failed class": one(train={"failed_weight": 0.0}),
        "no running mean": one(train={"average": 0.0}),
        "groups of mixed tasks": one(groups={"by_task": False, "size": 1024, "per_batch": 1}),
    }


def lstm() -> dict[str, dict[str, Any]]:
    trunk = {"style": "all", "backbone": "lstm"}
    return {
        f"loss: lstm, {loss}": merged(
            _alone(), {"trunk": trunk, "train": {"loss": loss, "regret_weight": 0.0}}
        )
        for loss in ("rank", "mse")
    }


# ---- few labels of a new platform


def mtl() -> list[Job]:
    return _targets(2000)


def mtl_more() -> list[Job]:
    return _targets(500, 8000)


def _targets(*counts: int) -> list[Job]:
    """Few labels of the target: alone, with one other, with both, and fine-tuned from both."""
    jobs = []
    for labels in counts:
        for system in ("alone", "+ both", "fine-tuned", "+ first", "+ second"):
            jobs += [few_labels(labels, system, target) for target in ANSOR]
    return jobs


def few_labels(labels: int, system: str, target: str) -> Job:
    """Four physical networks a model: as accurate as the mix, and they train in seconds."""
    others = tuple(p for p in ANSOR if p != target)
    helpers = {"alone": (), "+ first": others[:1], "+ second": others[1:]}.get(system, others)
    settings = merged(
        {**BASE, "members": 4, "physics_members": 0},
        {"trunk": {"style": "physics", "width": 128}, "train": {"epochs": 4}},
    )
    settings.pop("scale", None)
    return Job(
        table=f"mtl {labels}",
        system=f"+ {helpers[0]}" if len(helpers) == 1 else system,
        platforms=(target, *helpers),
        judged=(target,),
        folds=(0, 1),
        seeds=(0, 1, 2),
        labels=labels,
        fine_tune=system == "fine-tuned",
        steps=800,
        brief=True,
        jitters=(JITTER,),
        **settings,
    )


def all_labels() -> list[Job]:
    """The same networks with every label of the target, on the same folds."""
    jobs = []
    for target in ANSOR:
        job = few_labels(0, "alone", target)
        jobs.append(Job(**{**vars(job), "table": "mtl all"}))
    return jobs
