"""From stores to a model folder: split, train, validate, judge on held-out tasks, save."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import torch
from torch import nn

from tensorese.errors import did_you_mean
from tensorese.evaluation.judge import judge_programs, judged_index
from tensorese.evaluation.metrics import summary
from tensorese.evaluation.splits import by_network, by_operator, by_workload, check_disjoint
from tensorese.features.matrix import Encoder
from tensorese.features.programs import (
    DataError,
    Encoded,
    ProgramSet,
    encode_programs,
    read_programs,
)
from tensorese.models.batch import ProgramBatch
from tensorese.models.folder import KINDS, Card, save_model
from tensorese.models.predict import predict
from tensorese.models.tlp import TLP, TLPConfig, paper_config
from tensorese.models.tree_votes import TreeVotes
from tensorese.models.trunk import TrunkConfig
from tensorese.records.store import Store
from tensorese.training.groups import GroupConfig
from tensorese.training.trainer import Progress, TrainConfig, Trainer
from tensorese.training.transferred_labels import fill_few
from tensorese.training.trees import can_grow, grow_trees

SPLITS = ("by-workload", "by-operator", "by-network")
MEMBERS = 1
PHYSICS_MEMBERS = 0
TREES, TREE_VOTES = 150, 2
INSTEAD = 4
"""Networks of physical features that take the trees' place where none can be grown."""
KNOTS = 6
DOUBT = 0.0
JITTER = 0.3
VALIDATION_SHARE = 8
"""One in this many training workloads validates."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    kind: str = "tlp"
    platforms: tuple[str, ...] = ()
    split: str = "by-workload"
    fold: int = 0
    """The fold of five that is held out for `tensorese eval`; -1 trains on everything."""
    networks: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    """Workload ids by network, for a split by network."""
    held_out: str = ""
    """The network that is held out: none of its workloads is trained on, wherever it occurs."""
    preset: str = "default"
    members: int = MEMBERS
    physics_members: int = PHYSICS_MEMBERS
    trees: int = TREES
    """Grown beside the networks, by platform."""
    tree_votes: int = TREE_VOTES
    """Networks that they count for."""
    translate: bool = True
    """Several platforms: one with few labels also learns the others'."""
    doubt: float = DOUBT
    jitter: float = JITTER
    trunk: TrunkConfig = dataclasses.field(default_factory=lambda: TrunkConfig(knots=KNOTS))
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)


_OWN = ("doubt", "jitter", "members", "physics_members", "translate", "tree_votes", "trees")


def apply_settings(recipe: Recipe, settings: Mapping[str, str]) -> Recipe:
    """`--set key=value`, the key being a field of the trunk, the training or its groups."""
    for key, text in settings.items():
        if key in _OWN:
            recipe = _set(recipe, key, text)
        elif key in _names(TrunkConfig):
            recipe = replace(recipe, trunk=_set(recipe.trunk, key, text))
        elif key in _names(GroupConfig):
            groups = _set(recipe.train.groups, key, text)
            recipe = replace(recipe, train=replace(recipe.train, groups=groups))
        elif key in _names(TrainConfig) and key != "groups":
            recipe = replace(recipe, train=_set(recipe.train, key, text))
        else:
            known = sorted({*_names(TrunkConfig), *_names(GroupConfig), *_names(TrainConfig)})
            known = [*_OWN, *known]
            raise DataError(
                f"--set takes a known setting, but got {key!r}{did_you_mean(key, known)}; "
                f"known: {', '.join(k for k in known if k != 'groups')}"
            )
    return recipe


def _names(config: type) -> set[str]:
    return {field.name for field in dataclasses.fields(config)}


def _set(config: Any, key: str, text: str) -> Any:
    old = getattr(config, key)
    hint = get_type_hints(type(config))[key]
    if get_origin(hint) is Literal and text not in get_args(hint):
        known = get_args(hint)
        raise DataError(
            f"--set {key} takes one of {', '.join(known)}, but got {text!r}"
            f"{did_you_mean(text, known)}; its default is {old}"
        )
    try:
        value: Any = text
        if isinstance(old, bool) or old is None:
            value = {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        elif isinstance(old, int):
            value = int(text)
        elif isinstance(old, float):
            value = float(text)
        return replace(config, **{key: value})
    except (ValueError, KeyError) as error:
        raise DataError(
            f"--set {key} takes a {type(old).__name__}, but got {text!r}; its default is {old}"
        ) from error


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Task indices: gradient, validation, held out."""

    train: tuple[int, ...]
    validation: tuple[int, ...]
    held_out: tuple[int, ...]


def make_sides(programs: ProgramSet, recipe: Recipe) -> Sides:
    counts = np.bincount(
        programs.task[np.isfinite(programs.latency).any(1)], minlength=len(programs.tasks)
    )
    usable = np.flatnonzero(counts > 1)
    if not len(usable):
        n = len(programs)
        raise DataError(
            f"training needs programs that ran, but all {n:,} records failed; "
            "check the platform and its error texts with tensorese data stats"
        )
    if len(usable) < 2:
        raise DataError(
            f"a split {recipe.split} needs two workloads, but the records are of one; "
            "add records of other workloads"
        )
    if recipe.split not in SPLITS:
        raise DataError(
            f"--split is one of {', '.join(SPLITS)}, but got {recipe.split!r}"
            f"{did_you_mean(recipe.split, SPLITS)}"
        )
    out = held_out_tasks(programs, recipe)
    held = [int(k) for k in usable if k in out]
    rest = [int(k) for k in usable if k not in out]
    if not rest:
        raise DataError(
            f"a workload must be left to train on, but {recipe.held_out or f'fold {recipe.fold}'} "
            "holds them all; add records of other workloads"
        )
    rest.sort(key=lambda k: (programs.workloads[programs.tasks[k]].operator, programs.tasks[k]))
    validation = rest[VALIDATION_SHARE // 2 :: VALIDATION_SHARE]
    train = [k for k in rest if k not in set(validation)]
    check_disjoint(_ids(programs, rest), _ids(programs, held), programs.workloads)
    return Sides(train=tuple(train), validation=tuple(validation), held_out=tuple(held))


def held_out_tasks(programs: ProgramSet, recipe: Recipe) -> set[int]:
    """Indices of the tasks that the recipe keeps for `tensorese eval`."""
    if recipe.split != "by-network":
        split = by_operator if recipe.split == "by-operator" else by_workload
        folds = split(programs.workloads)
        return {k for k, name in enumerate(programs.tasks) if folds[name] == recipe.fold}
    if not recipe.networks:
        raise DataError(
            "--split by-network needs to know which workloads a network has, but these records "
            "do not say; give --networks FILE or split by-workload"
        )
    if recipe.held_out not in recipe.networks:
        raise DataError(
            f"--hold-out names a network of --networks, but got {recipe.held_out!r}"
            f"{did_you_mean(recipe.held_out, recipe.networks)}; "
            f"known: {', '.join(sorted(recipe.networks))}"
        )
    where: dict[str, set[str]] = {name: set() for name in programs.tasks}
    for network, workloads in recipe.networks.items():
        for name in workloads:
            where.setdefault(name, set()).add(network)
    sides = by_network(where, recipe.held_out)
    return {k for k, name in enumerate(programs.tasks) if sides[name] == 0}


def _ids(programs: ProgramSet, tasks: Sequence[int]) -> list[str]:
    return [programs.tasks[k] for k in tasks]


def judge_model(
    model: TLP, batch: ProgramBatch, programs: ProgramSet, platform: str, tasks: Sequence[int]
) -> dict[str, float | int]:
    """The summary of one platform's tasks; empty when none has enough records."""
    index = judged_index(programs, platform, tasks)
    scores = predict(model, batch, torch.from_numpy(index).to(batch.sketch_N.device))
    scores = scores[:, model.head_index(platform)] if len(index) else scores[:, 0]
    verdict = judge_programs(programs, platform, index, scores.cpu().numpy())
    results = verdict.tasks or verdict.small
    return summary(results) if results else {}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    folder: Path
    metrics: dict[str, Any]
    strangers: dict[str, int]
    transfer: str = ""
    remark: str = ""
    """Where the recipe could not be followed to the letter."""


def settled(recipe: Recipe) -> tuple[Recipe, str]:
    """The recipe as it can be followed here, and what had to change."""
    if recipe.preset == "paper" or not recipe.trees:
        return replace(recipe, trees=0), ""
    if can_grow():
        return recipe, ""
    changed = replace(recipe, trees=0, physics_members=max(recipe.physics_members, INSTEAD))
    return changed, (
        f"trees are grown by LightGBM, which is not installed; {changed.physics_members} networks "
        "take their place (pip install tensorese[baselines], or --set trees=0)"
    )


def build_model(recipe: Recipe, programs: ProgramSet) -> TLP:
    torch.manual_seed(recipe.train.seed)
    platforms = recipe.platforms or programs.platforms
    if recipe.preset == "paper":
        config = paper_config("cpu" if _is_cpu(programs) else "gpu", recipe.trunk.backbone)
    else:
        config = TLPConfig(
            trunk=recipe.trunk,
            spec=programs.spec(),
            members=recipe.members,
            physics_members=recipe.physics_members,
            doubt=recipe.doubt,
            jitter=recipe.jitter,
        )
    return KINDS[recipe.kind](config, platforms)


def _is_cpu(programs: ProgramSet) -> bool:
    text = "".join(pair.sketch.body[:4000] for pair in programs.pairs[:50])
    return "CHR" not in text and "threadIdx" not in text


def train_model(
    recipe: Recipe,
    stores: Sequence[Store],
    out: Path,
    *,
    device: str = "cpu",
    command: str = "",
    resume: bool = False,
    progress: Progress | None = None,
    wrap: Any = None,
    rank: int = 0,
    world: int = 1,
) -> Outcome:
    """Trains as the recipe says; the folder holds the model and, until done, a checkpoint."""
    recipe, remark = settled(recipe)
    programs = read_programs(stores, platforms=recipe.platforms)
    sides = make_sides(programs, recipe)
    model = build_model(recipe, programs)
    encoded = encode_programs(programs, Encoder(model.config.spec))
    learnt, told = with_translated(recipe, programs, encoded, sides.train)
    trainer = Trainer(
        model,
        learnt,
        encoded,
        train_tasks=sides.train,
        config=recipe.train,
        device=device,
        validate=_validator(programs, sides),
        wrap=wrap,
        rank=rank,
        world=world,
    )
    out.mkdir(parents=True, exist_ok=True)
    state = out / "checkpoint.safetensors"
    if not resume and rank == 0:
        state.unlink(missing_ok=True)
    trainer.fit(resume_from=state, progress=progress)
    transfer = ""
    if recipe.kind == "mtl-tlp" and len(programs.platforms) > 1 and sides.validation:
        transfer = check_transfer(recipe, programs, encoded, sides, trainer, device)
    if recipe.trees and rank == 0:  # after that check, which judges tasks that trees may see
        seen, seed = (*sides.train, *sides.validation), recipe.train.seed
        learnt, _ = with_translated(recipe, programs, encoded, seen)
        forests = grow_trees(learnt, encoded, seen, recipe.trees, seed)
        model.trees = TreeVotes(forests, recipe.tree_votes)
    metrics = _final_metrics(trainer, programs, sides)
    metrics |= {"transfer": transfer} if transfer else {}
    card = Card(
        command=command,
        data_hash=programs.digest,
        split=f"{recipe.split}, {recipe.held_out or f'fold {recipe.fold}'} held out",
        training_workloads=tuple(_ids(programs, (*sides.train, *sides.validation))),
        train=asdict(recipe.train),
        metrics=metrics,
    )
    if rank == 0:
        save_model(out, model, card)
        state.unlink(missing_ok=True)
    found = Outcome(folder=out, metrics=metrics, strangers=encoded.strangers, transfer=transfer)
    return replace(found, remark="; ".join(filter(None, [remark, told])))


def with_translated(
    recipe: Recipe, programs: ProgramSet, encoded: Encoded, tasks: Sequence[int]
) -> tuple[ProgramSet, str]:
    """What a model of several platforms learns from, and what was added to it.

    A platform with few labels gets those of the others, translated; none is judged by them.
    """
    features = encoded.values[:, : encoded.templates[0].n_physics]
    wanted = recipe.kind == "mtl-tlp" and recipe.translate and recipe.preset != "paper"
    if not (wanted and can_grow() and features.shape[1]):
        return programs, ""
    return fill_few(features, programs, tasks, seed=recipe.train.seed)


def _validator(programs: ProgramSet, sides: Sides) -> Any:
    def validate(model: TLP, batch: ProgramBatch) -> dict[str, float]:
        found = [
            judge_model(model, batch, programs, platform, sides.validation)
            for platform in programs.platforms
        ]
        kept = [f for f in found if f]
        if not kept:
            return {"top1": 0.0, "top5": 0.0}
        return {key: float(np.mean([f[key] for f in kept])) for key in ("top1", "top5")}

    return validate if sides.validation else None


def _final_metrics(trainer: Trainer, programs: ProgramSet, sides: Sides) -> dict[str, Any]:
    metrics: dict[str, Any] = {"epochs": len(trainer.history), "steps": trainer.step}
    for platform in programs.platforms:
        if sides.held_out:
            found = judge_model(trainer.model, trainer.batch, programs, platform, sides.held_out)
            for key in ("top1", "top5", "random_top1", "tasks"):
                if key in found:
                    metrics[f"{platform} held-out {key}"] = found[key]
    return metrics


def check_transfer(
    recipe: Recipe,
    programs: ProgramSet,
    encoded: Encoded,
    sides: Sides,
    trainer: Trainer,
    device: str,
) -> str:
    """Trains the platform with the fewest labels alone and compares on validation tasks."""
    labels = np.isfinite(programs.latency).sum(0)
    head = int(labels.argmin())
    target = programs.platforms[head]
    alone = replace(
        programs,
        platforms=(target,),
        latency=programs.latency[:, [head]],
        failed=programs.failed[:, [head]],
    )
    torch.manual_seed(recipe.train.seed)
    single: nn.Module = KINDS["tlp"](trainer.model.config, (target,))
    other = Trainer(
        single,  # type: ignore[arg-type]
        alone,
        encoded,
        train_tasks=sides.train,
        config=recipe.train,
        device=device,
    )
    other.fit()
    before = judge_model(other.model, other.batch, alone, target, sides.validation)
    after = judge_model(trainer.model, trainer.batch, programs, target, sides.validation)
    if not before or not after:
        return f"{target}: no validation task has its records, transfer not judged"
    verdict = (
        "hurts: train it alone or with fewer platforms"
        if (after["top1"] < before["top1"] - 0.01)
        else "does not hurt"
    )
    return (
        f"{target}: validation top-1 {before['top1']:.3f} alone, {after['top1']:.3f} with "
        f"{', '.join(p for p in programs.platforms if p != target)}; adding them {verdict}"
    )
