"""From stores to a model folder: split, train as the kind's recipe says, judge, save."""

from __future__ import annotations

import dataclasses
import json
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args, get_origin, get_type_hints

import numpy as np

from tensorese.errors import did_you_mean
from tensorese.evaluation.costs import TRAINING
from tensorese.evaluation.judge import judge_scores
from tensorese.evaluation.lowered_programs import NOBODY, Listener, ready_for
from tensorese.evaluation.metrics import summary
from tensorese.evaluation.splits import by_network, by_operator, by_workload, check_disjoint
from tensorese.features.base import FeatureSet
from tensorese.features.programs import DataError, ProgramSet, read_programs
from tensorese.models.base import Card, Model, save_model
from tensorese.records.store import Store, lowerings
from tensorese.training.trainer import Progress
from tensorese.training.transfer import Freeze, Start

SPLITS = ("by-workload", "by-operator", "by-network")
VALIDATION_SHARE = 8
"""One in this many training workloads validates."""
CHECKPOINT = "checkpoint.safetensors"
CURVE = "curve.jsonl"
"""Beside a trained model: a line an epoch."""


@dataclass(frozen=True, kw_only=True)
class DataSelection:
    """Which records are learnt from."""

    platforms: tuple[str, ...] = ()
    split: str = "by-workload"
    fold: int = 0
    """The fold of five that is held out for `tensorese eval`; -1 trains on everything."""
    networks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Workload ids by network, for a split by network."""
    held_out: str = ""
    """The network that is held out: none of its workloads is trained on, wherever it occurs."""

    def __str__(self) -> str:
        if self.fold < 0 and not self.held_out:
            return "none held out"
        return f"{self.split}, {self.held_out or f'fold {self.fold}'} held out"


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Task indices: gradient, validation, held out."""

    train: tuple[int, ...]
    validation: tuple[int, ...]
    held_out: tuple[int, ...]

    @property
    def seen(self) -> tuple[int, ...]:
        return (*self.train, *self.validation)


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingJob:
    """The data and settings that a recipe trains with."""

    programs: ProgramSet
    sides: Sides
    stores: Sequence[Store]
    corpora: Sequence[Store] = ()
    """Programs that nobody measured, for kinds that write."""
    device: str = "cpu"
    checkpoint: Path | None = None
    """Written after every epoch; where it exists, training goes on from it."""
    progress: Progress | None = None
    start: Start | None = None
    """The model whose weights training goes on from."""
    wrap: Any = None
    rank: int = 0
    world: int = 1
    """Processes that share the work, see `distributed`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Trained:
    model: Model
    metrics: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What a person should know of how it went."""
    learnt: ProgramSet | None = None
    """All that was learnt from, where that is more than the job's own programs."""
    half: bool = False
    """Whether weights are kept in 16 bits."""
    curve: Sequence[Mapping[str, Any]] = ()
    """What was known after each epoch: losses, and how well validation tasks are ranked."""


@dataclass(frozen=True, kw_only=True)
class Recipe(ABC):
    """A kind's settings, flat or in dataclasses of their own; `--set` changes any of them."""

    freezes: ClassVar[tuple[Freeze, ...]] = ()
    """What may stay as it is in a model that training goes on from; empty: it cannot go on."""
    selection: DataSelection = field(default_factory=DataSelection)
    seed: int = 0

    @classmethod
    @abstractmethod
    def named(cls, kind: str, preset: str, selection: DataSelection) -> Self:
        """The preset of a kind."""

    @abstractmethod
    def train(self, job: TrainingJob) -> Trained: ...

    def needs(self) -> tuple[FeatureSet, ...]:
        """What must be there before training: sets of lowered programs."""
        return ()

    def fixed(self) -> Mapping[str, str]:
        """Settings that this preset does not take, and why."""
        return {}


def apply_settings(recipe: Recipe, settings: Mapping[str, str]) -> Recipe:
    """`--set key=value`: an unknown key, and one that the preset ignores, are refused."""
    places = _places(recipe)
    for key, text in settings.items():
        if key not in places:
            raise DataError(
                f"--set takes a known setting, but got {key!r}{did_you_mean(key, places)}; "
                f"known: {', '.join(sorted(places))}"
            )
        recipe = _set(recipe, places[key], text)
    # Last: one setting may allow another, in whatever order they are named.
    for key, why in recipe.fixed().items():
        if key in settings:
            raise DataError(f"--set {key} has no effect here: {why}; leave it out")
    return recipe


def _places(config: Any, path: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
    """Where each setting is, by its name; plain fields come before nested ones."""
    places: dict[str, tuple[str, ...]] = {}
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if item.name in ("selection", "spec", "kind", "preset", "style"):
            continue
        if dataclasses.is_dataclass(value):
            nested = _places(value, (*path, item.name))
            places = {**nested, **places}
        else:
            places[item.name] = (*path, item.name)
    return places


def _set(config: Any, path: tuple[str, ...], text: str) -> Any:
    key, rest = path[0], path[1:]
    value = getattr(config, key)
    changed = _set(value, rest, text) if rest else _parsed(config, key, text)
    try:
        return replace(config, **{key: changed})
    except ValueError as error:
        raise DataError(f"--set {key}={text} cannot be: {error}") from error


def _parsed(config: Any, key: str, text: str) -> Any:
    old = getattr(config, key)
    hint = get_type_hints(type(config))[key]
    if get_origin(hint) is Literal:
        if text not in get_args(hint):
            raise DataError(
                f"--set {key} takes one of {', '.join(get_args(hint))}, but got {text!r}"
                f"{did_you_mean(text, get_args(hint))}; its default is {old}"
            )
        return text
    try:
        if isinstance(old, bool) or old is None:
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        return type(old)(text)
    except (ValueError, KeyError) as error:
        raise DataError(
            f"--set {key} takes a {type(old).__name__}, but got {text!r}; its default is {old}"
        ) from error


def make_sides(programs: ProgramSet, selection: DataSelection) -> Sides:
    counts = np.bincount(
        programs.task[np.isfinite(programs.latency).any(1)], minlength=len(programs.tasks)
    )
    usable = np.flatnonzero(counts > 1)
    if not len(usable) and counts.any():
        raise DataError(
            "a task teaches by two programs or more that ran, but none of these records' "
            f"{int((counts > 0).sum())} tasks has so many; add records"
        )
    if not len(usable):
        n = len(programs)
        raise DataError(
            f"training needs programs that ran, but all {n:,} records failed; "
            "check the platform and its error texts with tensorese data stats"
        )
    if len(usable) < 2:
        raise DataError(
            f"a split {selection.split} needs two workloads, but the records are of one; "
            "add records of other workloads"
        )
    if selection.split not in SPLITS:
        raise DataError(
            f"--split is one of {', '.join(SPLITS)}, but got {selection.split!r}"
            f"{did_you_mean(selection.split, SPLITS)}"
        )
    out = held_out_tasks(programs, selection)
    held = [int(k) for k in usable if k in out]
    rest = [int(k) for k in usable if k not in out]
    if not rest:
        which = selection.held_out or f"fold {selection.fold}"
        raise DataError(
            f"a workload must be left to train on, but {which} "
            "holds them all; add records of other workloads"
        )
    rest.sort(key=lambda k: (programs.workloads[programs.tasks[k]].operator, programs.tasks[k]))
    validation = rest[VALIDATION_SHARE // 2 :: VALIDATION_SHARE]
    train = [k for k in rest if k not in set(validation)]
    check_disjoint(_ids(programs, rest), _ids(programs, held), programs.workloads)
    return Sides(train=tuple(train), validation=tuple(validation), held_out=tuple(held))


def held_out_tasks(programs: ProgramSet, selection: DataSelection) -> set[int]:
    """Indices of the tasks that are held out for `tensorese eval`."""
    if selection.split != "by-network":
        split = by_operator if selection.split == "by-operator" else by_workload
        folds = split(programs.workloads)
        return {k for k, name in enumerate(programs.tasks) if folds[name] == selection.fold}
    if not selection.networks:
        raise DataError(
            "--split by-network needs to know which workloads a network has, but these records "
            "do not say; give --networks FILE or split by-workload"
        )
    if selection.held_out not in selection.networks:
        raise DataError(
            f"--hold-out names a network of --networks, but got {selection.held_out!r}"
            f"{did_you_mean(selection.held_out, selection.networks)}; "
            f"known: {', '.join(sorted(selection.networks))}"
        )
    where: dict[str, set[str]] = {name: set() for name in programs.tasks}
    for network, workloads in selection.networks.items():
        for name in workloads:
            where.setdefault(name, set()).add(network)
    sides = by_network(where, selection.held_out)
    return {k for k, name in enumerate(programs.tasks) if sides[name] == 0}


def _ids(programs: ProgramSet, tasks: Sequence[int]) -> list[str]:
    return [programs.tasks[k] for k in tasks]


def judge_model(
    model: Model, programs: ProgramSet, platform: str, tasks: Sequence[int], inputs: Any = None
) -> dict[str, float | int]:
    """The summary of one platform's tasks; empty when none has enough records."""
    inputs = model.read_all(programs) if inputs is None else inputs
    scores = model.rank(inputs, platform).astype(np.float64)
    results = judge_scores(programs, platform, scores, tasks)
    return summary(results) if results else {}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    folder: Path
    metrics: dict[str, Any]
    notes: tuple[str, ...]


def train_model(
    recipe: Recipe,
    stores: Sequence[Store],
    out: Path,
    *,
    corpora: Sequence[Store] = (),
    device: str = "cpu",
    command: str = "",
    resume: bool = False,
    progress: Progress | None = None,
    listener: Listener = NOBODY,
    start: Start | None = None,
    wrap: Any = None,
    rank: int = 0,
    world: int = 1,
) -> Outcome:
    """Trains as the recipe says; the folder holds the model and, until done, a checkpoint."""
    programs = read_programs(stores, platforms=recipe.selection.platforms)
    sides = make_sides(programs, recipe.selection)
    if start is not None:
        sides = _unseen(programs, sides, start)
    programs = ready_for(recipe.needs(), programs, stores, listener)
    out.mkdir(parents=True, exist_ok=True)
    state = out / CHECKPOINT
    if not resume and rank == 0:
        _forget(out)
    job = TrainingJob(
        programs=programs,
        sides=sides,
        stores=stores,
        corpora=corpora,
        device=device,
        checkpoint=state,
        progress=progress,
        start=start,
        wrap=wrap,
        rank=rank,
        world=world,
    )
    started = time.monotonic()
    trained = recipe.train(job)
    spent = {TRAINING: time.monotonic() - started}
    metrics = {**spent, **trained.metrics, **_held_out_metrics(trained.model, programs, sides)}
    if rank == 0:
        card = _card(recipe, job, trained, metrics, command)
        save_model(out, trained.model, card, half=trained.half)
        if trained.curve:
            lines = [json.dumps(entry) + "\n" for entry in trained.curve]
            (out / CURVE).write_text("".join(lines))
        _forget(out)
    mixed = mixed_labels(stores, programs.platforms)
    return Outcome(folder=out, metrics=metrics, notes=(*mixed, *trained.notes))


def _unseen(programs: ProgramSet, sides: Sides, start: Start) -> Sides:
    """Without the held-out tasks that the other model has learnt from: it is not judged on them."""
    seen = set(start.model.card.training_workloads)
    left = tuple(k for k in sides.held_out if programs.tasks[k] not in seen)
    return replace(sides, held_out=left)


def mixed_labels(stores: Sequence[Store], platforms: Sequence[str]) -> tuple[str, ...]:
    """A line for every platform whose programs were not all compiled in one way."""
    lines = []
    for platform in platforms:
        counted: Counter[str] = Counter()
        for store in stores:
            if platform in store.platforms():
                counted.update(lowerings(store.table(["toolchain"], platform=platform)))
        if len(counted) > 1:
            each = ", ".join(f"{n:,} by {version or 'none'}" for version, n in counted.items())
            lines.append(f"labels of {platform} are of several versions of `lowering`: {each}")
    return tuple(lines)


def _forget(out: Path) -> None:
    """Checkpoints of a run that is over; a kind may keep one a stage."""
    for path in out.glob(f"*{CHECKPOINT}"):
        path.unlink(missing_ok=True)


def _card(
    recipe: Recipe, job: TrainingJob, trained: Trained, metrics: Mapping[str, Any], command: str
) -> Card:
    settings = {k: v for k, v in dataclasses.asdict(recipe).items() if k != "selection"}
    targets = {name: text for store in job.stores for name, text in store.targets().items()}
    learnt = trained.learnt
    seen = tuple(_ids(job.programs, job.sides.seen)) if learnt is None else learnt.tasks
    if job.start is not None:
        seen = tuple(dict.fromkeys((*job.start.model.card.training_workloads, *seen)))
    return Card(
        command=command,
        data_hash=(learnt or job.programs).digest,
        split=str(recipe.selection),
        training_workloads=seen,
        train=settings,
        metrics=metrics,
        targets={name: targets[name] for name in trained.model.platforms if name in targets},
    )


def _held_out_metrics(model: Model, programs: ProgramSet, sides: Sides) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    inputs = model.read_all(programs) if sides.held_out else None
    for platform in model.platforms if sides.held_out else ():
        judged = judge_model(model, programs, platform, sides.held_out, inputs)
        for key in ("top1", "top5", "random_top1", "tasks"):
            if key in judged:
                metrics[f"{platform} held-out {key}"] = judged[key]
    return metrics
