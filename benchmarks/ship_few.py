"""The model over all platforms with a thousand labels of one: a part of `ship_models.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorese.models.tree_votes import TreeVotes

from tensorese.models.trees import mean_of
from tensorese.training.physics import Run, SmallRecipe, only
from tensorese.training.stacked import keep_labels
from tensorese.training.transferred_labels import translated
from tensorese.training.trees import can_grow

if TYPE_CHECKING:
    from ship_models import Ship

FEW_LABELS = 1000


class Few:
    """`alone` also trains on the thousand labels without the other platforms'."""

    def __init__(self, ship: Ship, alone: bool) -> None:
        self.ship, self.alone = ship, alone

    def run(self, chosen: str, recipe: SmallRecipe) -> None:
        ship = self.ship
        if len(ship.programs.platforms) < 2:
            return
        named = self.runs()
        ship.say(f"{len(named)} models of {FEW_LABELS} labels of a platform")
        models = ship.train_all([run for _, _, run in named], recipe)
        for (label, platform, run), model in zip(named, models, strict=True):
            ship.judge("test", chosen, label, run.seed, model, platform)
            if ship.votes:
                forests = ship.grown(ship.trees, run.programs, ship.all, run.seed)
                if len(forests) > 1:  # its own beside those it shares, as what ships has them
                    mine = only(run.programs, platform)
                    own = ship.grown(ship.trees, mine, ship.all, run.seed)[platform]
                    forests[platform] = mean_of([own, forests[platform]])
                model.trees = TreeVotes(forests, ship.votes)
                both = f"networks and {ship.trees}, {ship.votes} votes"
                ship.judge("test", both, f"{label} with trees", run.seed, model, platform)
        ship.say(f"judged with {FEW_LABELS} labels of a platform")

    def runs(self) -> list[tuple[str, str, Run]]:
        """The labels that a platform lacks are those of the others, translated."""
        ship, found = self.ship, []
        wanted = ship.args.labels.split(",") if ship.args.labels else ship.own
        for platform in [name for name in ship.own if name in wanted]:
            for seed in range(ship.args.first_seed, ship.args.seeds):
                cut = keep_labels(ship.programs, platform, ship.all, FEW_LABELS, seed=seed)
                labels = cut
                if can_grow():
                    labels = translated(ship.given.features, cut, platform, ship.all, seed=seed)
                run = Run(programs=labels, tasks=ship.all, seed=seed)
                found.append((f"{FEW_LABELS} and others", platform, run))
                if self.alone:
                    run = Run(programs=only(cut, platform), tasks=ship.all, seed=seed)
                    found.append((f"{FEW_LABELS} alone", platform, run))
        return found
