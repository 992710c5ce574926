"""A new head on the nearest trunk: fitted to a few hundred labels, judged on tasks held out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from tensorese.errors import TensoreseError
from tensorese.evaluation.metrics import mean_top_k
from tensorese.evaluation.ranked import judge_scores
from tensorese.evaluation.trees import tree_labels
from tensorese.features.programs import ProgramSet
from tensorese.models.folder import load_model
from tensorese.models.tlp import TLP
from tensorese.models.tree_votes import TreeVotes
from tensorese.models.trees import Forest
from tensorese.training.physics import (
    Run,
    SmallRecipe,
    SmallSet,
    only,
    small_scores,
    tune_weights,
)
from tensorese.training.trees import BOTH, SETTING, can_grow, grow_on, grow_taught, levelled

HELD_OUT = 4
"""One probe task in so many is not fitted to until the gain is known."""
LEAST_TASKS = 8
FOLDS = 3
"""Of the tasks that are fitted to: what is taken is what ranked best on those left out in turn. A
choice on a handful of tasks is a draw, and a poor one costs more than all of them are worth."""
VARIANTS = {
    # What is trained, and how: a head alone cannot spoil the trunk, a trunk can learn the machine.
    "head": SmallRecipe(steps=400, lr=1e-3),
    "all": SmallRecipe(steps=600, lr=4e-4),
}


TREES, TREE_VOTES, LEAST_LEAF = 150, 32, 20
CORRECTING = {"num_leaves": 15, "learning_rate": 0.05}
"""Grown from the new labels, where LightGBM is installed (extra `baselines`)."""
Whose: TypeAlias = Literal["nearest", "own", "taught"]
"""The nearest head's trees as they are; trees of the new labels alone; the nearest head's with
trees of the new labels that correct them."""
_TOLD: dict[Whose, str] = {
    "nearest": "the nearest head's trees",
    "own": "its own trees",
    "taught": "the nearest head's trees, corrected",
}


class OnboardError(TensoreseError):
    """A platform that cannot be taught as asked."""


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

    def trees(self, platform: str, forests: Mapping[Whose, Forest]) -> TreeVotes | None:
        if not self.count or self.whose not in forests:
            return None
        return TreeVotes({platform: forests[self.whose]}, self.count)

    def __str__(self) -> str:
        return f"{_TOLD[self.whose]}, {self.count} votes" if self.count else "no trees"


@dataclass(frozen=True, kw_only=True, eq=False)
class Adapted:
    model: TLP
    variant: str
    gain: Gain
    votes: Votes


def start_from(folder: Path, head: str, platform: str) -> TLP:
    """The folder's trunk with a copy of one of its heads, and its trees, under the platform's
    name."""
    old = load_model(folder).model
    place = old.head_index(head)
    config = old.config
    new = TLP(config, (platform,))
    state = {}
    for name, tensor in old.state_dict().items():
        parts = name.split(".")
        if "heads" in parts:
            at = parts.index("heads") + 1
            if int(parts[at]) != place:
                continue
            parts[at] = "0"
        state[".".join(parts)] = tensor.clone()
    new.load_state_dict(state)
    if old.trees is not None and head in old.trees.forests:
        new.trees = TreeVotes({platform: old.trees.forests[head]}, old.trees.votes)
    return new


def adapt(
    given: SmallSet, platform: str, folder: Path, head: str, *, seed: int = 0, quick: bool = False
) -> Adapted:
    """Chooses without the held-out tasks, tells the gain on them, then fits to all."""
    programs = given.programs
    tasks = labelled(programs, platform)
    if len(tasks) < LEAST_TASKS:
        raise OnboardError(
            f"a head needs labels of at least {LEAST_TASKS} tasks, but only {len(tasks)} have "
            "two valid programs or more; measure for more --minutes"
        )
    out = tasks[HELD_OUT - 1 :: HELD_OUT]
    rest = [task for task in tasks if task not in set(out)]
    before = start_from(folder, head, platform).eval()
    theirs = None if before.trees is None else before.trees.forests[platform]
    best, votes = _chosen(given, platform, folder, head, rest, seed, quick)

    def fitted_to(some: Sequence[int]) -> TLP:
        model = _fit(given, platform, folder, head, some, best, seed, quick)
        model.trees = votes.trees(platform, grow(given, platform, some, theirs))
        return model

    gain = _gain(given, platform, before, fitted_to(rest), out)
    return Adapted(model=fitted_to(tasks), variant=best, gain=gain, votes=votes)


def _chosen(
    given: SmallSet,
    platform: str,
    folder: Path,
    head: str,
    tasks: Sequence[int],
    seed: int,
    quick: bool,
) -> tuple[str, Votes]:
    """What is trained, and which trees count for how much: each part of the tasks left out once."""
    start = start_from(folder, head, platform)
    theirs = None if start.trees is None else start.trees.forests[platform]
    counts = {len(start.members), TREE_VOTES if start.trees is None else start.trees.votes}
    marks: dict[tuple[str, Votes], list[float]] = {}
    for fold in range(FOLDS):
        inner = tasks[fold::FOLDS]
        fitted = [task for task in tasks if task not in set(inner)]
        forests = grow(given, platform, fitted, theirs)
        for variant in VARIANTS:
            model = _fit(given, platform, folder, head, fitted, variant, seed, quick)
            for votes in vote_choices(counts, forests):
                model.trees = votes.trees(platform, forests)
                found = _marks(given, platform, model, inner)
                marks.setdefault((variant, votes), []).extend(found)
    return max(marks, key=lambda pair: float(np.mean(marks[pair] or [0.0])))


def vote_choices(counts: Iterable[int], forests: Mapping[Whose, Forest]) -> list[Votes]:
    """The nearest platform's trees know nothing of the new labels, and a few labels grow poor
    trees: whose count, and for how much, is tried."""
    return [Votes(0), *(Votes(n, whose) for whose in forests for n in sorted(set(counts)))]


def grow(
    given: SmallSet, platform: str, tasks: Sequence[int], theirs: Forest | None = None
) -> dict[Whose, Forest]:
    """What trees there can be beside the networks, by whose they are."""
    found: dict[Whose, Forest] = {} if theirs is None else {"nearest": theirs}
    if not can_grow():
        return found
    labels, few = only(given.programs, platform), {"min_data_in_leaf": LEAST_LEAF}
    own = grow_on(given.features, labels, tasks, TREES, few, BOTH)
    if platform in own:
        found["own"] = own[platform]
        if theirs is not None:
            setting = {**SETTING, **few, **CORRECTING}
            index, share = tree_labels(labels, tasks)
            said = theirs.predict(given.features[index])
            wanted = levelled(share, labels.task[index], said)
            found["taught"] = grow_taught(given.features, index, wanted, TREES, setting, theirs)
    return found


def labelled(programs: ProgramSet, platform: str) -> list[int]:
    """Tasks with two valid programs or more there."""
    valid = programs.valid(programs.head(platform))
    counts = np.bincount(programs.task[valid], minlength=len(programs.tasks))
    return [int(k) for k in np.flatnonzero(counts > 1)]


def _fit(
    given: SmallSet,
    platform: str,
    folder: Path,
    head: str,
    tasks: Sequence[int],
    variant: str,
    seed: int,
    quick: bool,
) -> TLP:
    model = start_from(folder, head, platform)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(variant == "all" or "heads" in name)
    recipe = VARIANTS[variant]
    recipe = replace(recipe, steps=recipe.steps // 10) if quick else recipe
    run = Run(programs=given.programs, tasks=tuple(tasks), seed=seed)
    return tune_weights(given, run, recipe, model).requires_grad_(True)


def _marks(given: SmallSet, platform: str, model: TLP, tasks: Sequence[int]) -> list[float]:
    """How well each task is ranked, the first picks and the whole order."""
    scores = small_scores(model, given, platform)
    results = judge_scores(given.programs, platform, scores, tasks, least=4)
    return [r.ratio(1) + r.steady + r.pairwise for r in results]


def _gain(given: SmallSet, platform: str, before: TLP, after: TLP, tasks: Sequence[int]) -> Gain:
    old, new = (
        judge_scores(given.programs, platform, small_scores(m, given, platform), tasks, least=4)
        for m in (before, after)
    )
    if not old:
        nothing = {1: float("nan"), 5: float("nan")}
        return Gain(tasks=0, before=nothing, after=nothing, random=nothing)
    return Gain(
        tasks=len(old),
        before={k: mean_top_k(old, k) for k in (1, 5)},
        after={k: mean_top_k(new, k) for k in (1, 5)},
        random={k: float(np.mean([r.random[k] for r in old])) for k in (1, 5)},
    )
