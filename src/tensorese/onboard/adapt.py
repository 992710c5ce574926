"""A new head on the nearest trunk: fitted to a few hundred labels, judged on tasks held out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from tensorese.errors import TensoreseError
from tensorese.evaluation.judge import judge_scores
from tensorese.evaluation.metrics import TaskResult, mean_top_k
from tensorese.features.programs import ProgramSet
from tensorese.models.base import Model, load_model
from tensorese.models.ensemble import Ensemble, Member
from tensorese.models.trees import Forest, Trees
from tensorese.training.fine_tune import NewLabels, fine_tune, one_head
from tensorese.training.labels import only, tree_labels
from tensorese.training.physics import PhysicsFit
from tensorese.training.trees import BOTH, SETTING, can_grow, grow_corrected, grow_on, levelled

HELD_OUT = 4
"""One probe task in so many is not fitted to until the gain is known."""
LEAST_TASKS = 8
FOLDS = 3
"""Of the tasks that are fitted to: what is taken is what ranked best on those left out in turn. A
choice on a handful of tasks is a draw, and a poor one costs more than all of them are worth."""
VARIANTS = {
    # What is trained, and how: a head alone cannot spoil the trunk, a trunk can learn the machine.
    "head": PhysicsFit(steps=400, lr=1e-3),
    "all": PhysicsFit(steps=600, lr=4e-4),
}
TREES, TREE_VOTES, LEAST_LEAF = 150, 32, 20
CORRECTING = {"num_leaves": 15, "learning_rate": 0.05}
"""Grown from the new labels, where LightGBM is installed (extra `baselines`)."""
Whose: TypeAlias = Literal["nearest", "own", "corrected"]
"""The nearest head's trees as they are; trees of the new labels alone; the nearest head's with
trees of the new labels that correct them."""
_WHOSE: dict[Whose, str] = {
    "nearest": "the nearest head's trees",
    "own": "its own trees",
    "corrected": "the nearest head's trees, corrected",
}


class OnboardError(TensoreseError):
    """A platform that cannot be learnt."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Top-k on held-out tasks, with the nearest head and with the new one."""

    tasks: int
    before: dict[int, float]
    after: dict[int, float]
    random: dict[int, float]

    def lines(self) -> list[str]:
        return [
            f"top-{k} on {self.tasks} held-out tasks: {self.before[k]:.3f} before, "
            f"{self.after[k]:.3f} after (random order {self.random[k]:.3f})"
            for k in (1, 5)
        ]


@dataclass(frozen=True)
class Votes:
    """How much the trees beside the networks count, and whose they are."""

    count: int
    whose: Whose = "nearest"

    def join(self, networks: Model, forests: Mapping[Whose, Forest]) -> Model:
        """The networks with these trees, or alone."""
        if not self.count or self.whose not in forests:
            return networks
        trees = Trees(networks.needs.name, {networks.platforms[0]: forests[self.whose]})
        return Ensemble([Member(model=networks), Member(model=trees, votes=self.count)])

    def __str__(self) -> str:
        return f"{_WHOSE[self.whose]}, {self.count} votes" if self.count else "no trees"


@dataclass(frozen=True, kw_only=True, eq=False)
class Adapted:
    model: Model
    variant: str
    gain: Gain
    votes: Votes


class Start:
    """The model that a platform starts from: one head's networks and, if it has any, trees."""

    def __init__(self, folder: Path, head: str, platform: str) -> None:
        model = load_model(folder)
        networks, trees = model, None
        if isinstance(model, Ensemble):
            networks, trees = model.members[0].model, model.member("trees")
        self.networks = one_head(networks, head, platform)
        self.forests: dict[Whose, Forest] = {}
        self.votes = Votes(0)
        if trees is not None and isinstance(trees.model, Trees) and head in trees.model.forests:
            self.forests["nearest"] = trees.model.forests[head]
            self.votes = Votes(trees.votes)
        self.reads_rows = self.networks.needs.shape == "row"
        """Trees read rows of hardware features; networks that read something else have none."""

    def model(self) -> Model:
        return self.votes.join(self.networks, self.forests)

    def vote_counts(self) -> set[int]:
        voters = self.networks.section().get("networks", 1)
        return {int(voters), self.votes.count or TREE_VOTES}


def adapt(
    labels: NewLabels, platform: str, folder: Path, head: str, *, seed: int = 0, quick: bool = False
) -> Adapted:
    """Chooses without the held-out tasks, reports the gain on them, then fits to all."""
    tasks = labelled(labels.programs, platform)
    if len(tasks) < LEAST_TASKS:
        raise OnboardError(
            f"a head needs labels of at least {LEAST_TASKS} tasks, but only {len(tasks)} have "
            "two valid programs or more; measure for more --minutes"
        )
    out = tasks[HELD_OUT - 1 :: HELD_OUT]
    rest = [task for task in tasks if task not in set(out)]
    start = Start(folder, head, platform)
    variant, votes = _chosen(labels, platform, start, rest, seed, quick)

    def fitted_to(some: Sequence[int]) -> Model:
        networks = _fit(labels, start, some, variant, seed, quick)
        return votes.join(networks, grow(labels, platform, some, start))

    gain = _gain(labels.programs, platform, start.model(), fitted_to(rest), out)
    return Adapted(model=fitted_to(tasks), variant=variant, gain=gain, votes=votes)


def _chosen(
    labels: NewLabels, platform: str, start: Start, tasks: Sequence[int], seed: int, quick: bool
) -> tuple[str, Votes]:
    """What is trained, and which trees count for how much: each part of the tasks left out once."""
    marks: dict[tuple[str, Votes], list[float]] = {}
    for fold in range(FOLDS):
        inner = tasks[fold::FOLDS]
        fitted = [task for task in tasks if task not in set(inner)]
        forests = grow(labels, platform, fitted, start)
        for variant in VARIANTS:
            networks = _fit(labels, start, fitted, variant, seed, quick)
            for votes in vote_choices(start.vote_counts(), forests):
                model = votes.join(networks, forests)
                results = _judged(labels.programs, platform, model, inner)
                scores = [r.ratio(1) + r.steady + r.pairwise for r in results]
                marks.setdefault((variant, votes), []).extend(scores)
    return max(marks, key=lambda pair: float(np.mean(marks[pair] or [0.0])))


def vote_choices(counts: Iterable[int], forests: Mapping[Whose, Forest]) -> list[Votes]:
    """The nearest platform's trees know nothing of the new labels, and a few labels grow poor
    trees: whose count, and for how much, is tried."""
    return [Votes(0), *(Votes(n, whose) for whose in forests for n in sorted(set(counts)))]


def grow(
    labels: NewLabels, platform: str, tasks: Sequence[int], start: Start
) -> dict[Whose, Forest]:
    """What trees there can be beside the networks, by whose they are."""
    forests = dict(start.forests)
    if not (start.reads_rows and can_grow()):
        return forests
    features, mine = labels.physics.features, only(labels.programs, platform)
    few = {"min_data_in_leaf": LEAST_LEAF}
    own = grow_on(features, mine, tasks, TREES, few, BOTH)
    if platform in own:
        forests["own"] = own[platform]
        if "nearest" in forests:
            nearest = forests["nearest"]
            setting = {**SETTING, **few, **CORRECTING}
            index, share = tree_labels(mine, tasks)
            wanted = levelled(share, mine.task[index], nearest.predict(features[index]))
            forests["corrected"] = grow_corrected(features, index, wanted, TREES, setting, nearest)
    return forests


def labelled(programs: ProgramSet, platform: str) -> list[int]:
    """Tasks with two valid programs or more there."""
    valid = programs.valid(programs.head(platform))
    counts = np.bincount(programs.task[valid], minlength=len(programs.tasks))
    return [int(k) for k in np.flatnonzero(counts > 1)]


def _fit(
    labels: NewLabels, start: Start, tasks: Sequence[int], variant: str, seed: int, quick: bool
) -> Model:
    fit = VARIANTS[variant]
    fit = replace(fit, steps=fit.steps // 10) if quick else fit
    return fine_tune(start.networks, labels, tasks, fit, heads_only=variant == "head", seed=seed)


def _judged(
    programs: ProgramSet, platform: str, model: Model, tasks: Sequence[int]
) -> list[TaskResult]:
    scores = model.rank(model.read_all(programs), platform).astype(np.float64)
    return judge_scores(programs, platform, scores, tasks, least=4)


def _gain(
    programs: ProgramSet, platform: str, before: Model, after: Model, tasks: Sequence[int]
) -> Gain:
    old, new = (_judged(programs, platform, model, tasks) for model in (before, after))
    if not old:
        nothing = {1: float("nan"), 5: float("nan")}
        return Gain(tasks=0, before=nothing, after=nothing, random=nothing)
    return Gain(
        tasks=len(old),
        before={k: mean_top_k(old, k) for k in (1, 5)},
        after={k: mean_top_k(new, k) for k in (1, 5)},
        random={k: float(np.mean([r.random[k] for r in old])) for k in (1, 5)},
    )
