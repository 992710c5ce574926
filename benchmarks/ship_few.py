"""The model over all platforms with a thousand labels of one: a part of `ship_models.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tensorese.evaluation.trees import installed_trees
from tensorese.models.forest import Forest, mean_of
from tensorese.models.programs import ProgramSet
from tensorese.models.tree_votes import TreeVotes
from tensorese.training.grow import OCTAVE, SETTING, grow_relative, grow_taught, labels_of
from tensorese.training.many import keep_labels
from tensorese.training.small import Run, SmallRecipe, only

if TYPE_CHECKING:
    from ship_models import Ship

FEW_LABELS = 1000
TAUGHT = {**SETTING, "num_leaves": 7, "learning_rate": 0.05, "min_data_in_leaf": 20}
"""What shared trees get wrong, from a thousand labels; on validation tasks 7 leaves were best."""
RATES = (0.0, 0.125, 0.2, 0.3)
"""What twice the time costs in trees that compare a platform with the others; 0: no such trees."""


class Few:
    """`alone` also trains on the thousand labels without the other platforms'."""

    def __init__(self, ship: Ship, alone: bool) -> None:
        self.ship, self.alone = ship, alone
        self.rate = OCTAVE if ship.args.rate is None else ship.args.rate

    def run(self, chosen: str, recipe: SmallRecipe) -> None:
        ship = self.ship
        if len(ship.programs.platforms) < 2:
            return
        if ship.votes and ship.args.rate is None and "lightgbm" in installed_trees():
            self.choose_rate()
        named = self.runs()
        models = ship.train_all([run for _, _, run in named], recipe)
        for (label, platform, run), model in zip(named, models, strict=True):
            ship.judge("test", chosen, label, run.seed, model, platform)
            if ship.votes:
                forests = ship.grown(ship.trees, run.programs, ship.all, run.seed)
                if len(run.programs.platforms) > 1:
                    forests[platform] = self.trees(forests, run.programs, platform, ship.all)
                model.trees = TreeVotes(forests, ship.votes)
                both = f"networks and {ship.trees}, {ship.votes} votes"
                ship.judge("test", both, f"{label} with trees", run.seed, model, platform)
        ship.say(f"judged with {FEW_LABELS} labels of a platform")

    def runs(self) -> list[tuple[str, str, Run]]:
        ship, found = self.ship, []
        wanted = ship.args.labels.split(",") if ship.args.labels else ship.own
        for platform in [name for name in ship.own if name in wanted]:
            for seed in range(ship.args.first_seed, ship.args.seeds):
                cut = keep_labels(ship.programs, platform, ship.all, FEW_LABELS, seed=seed)
                run = Run(programs=cut, tasks=ship.all, seed=seed)
                found.append((f"{FEW_LABELS} and others", platform, run))
                if self.alone:
                    run = Run(programs=only(cut, platform), tasks=ship.all, seed=seed)
                    found.append((f"{FEW_LABELS} alone", platform, run))
        return found

    def choose_rate(self) -> None:
        """On validation tasks of every second platform, by trees alone."""
        ship = self.ship
        marks: dict[float, list[float]] = {rate: [] for rate in RATES}
        for platform in ship.own[::2]:
            cut = keep_labels(ship.programs, platform, ship.train, FEW_LABELS, seed=0)
            shared = ship.grown(ship.trees, cut, ship.train, 0)
            for self.rate in marks:
                forest = self.trees(shared, cut, platform, ship.train)
                scores = forest.predict(ship.given.features)
                recipe = f"trees of {FEW_LABELS} labels, compared at {self.rate:g}"
                mark = ship.row("validation", recipe, "trees", 0, platform, scores)
                marks[self.rate].append(mark)
        self.rate = max(marks, key=lambda rate: float(np.mean(marks[rate])))
        shown = ", ".join(f"{rate:g} {np.mean(found):.4f}" for rate, found in marks.items())
        ship.say(f"trees of few labels compared with the others' at {shown}")

    def trees(
        self,
        shared: Mapping[str, Forest],
        labels: ProgramSet,
        platform: str,
        tasks: Sequence[int],
    ) -> Forest:
        """Shared trees with a few more of what they get wrong on the platform with few labels, and
        the others' with a few more of how its times compare with theirs."""
        features = self.ship.given.features
        row, column, told = labels_of(labels, tasks, self.ship.scales)
        mine = column == labels.head(platform)
        wanted = np.mean(told, axis=0)[mine]
        taught = grow_taught(features, row[mine], wanted, 100, TAUGHT, shared[platform])
        if not self.rate:
            return taught
        others = {name: forest for name, forest in shared.items() if name != platform}
        compared = grow_relative(features, labels, tasks, platform, 150, TAUGHT, others, self.rate)
        return mean_of([taught, compared])
