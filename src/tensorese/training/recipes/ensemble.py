"""`train ensemble`: networks on hardware features and boosted trees voting; what ships.

The preset `ship` also learns from the other platforms of the stores: one trunk for all of them, of
which the model keeps its own head, and beside the platform's trees as many that all share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from tensorese.arrays import Floats32
from tensorese.features.physics import Machine
from tensorese.features.programs import DataError, ProgramSet, read_programs
from tensorese.models.ensemble import Ensemble, Member
from tensorese.models.trees import Forest, Trees, mean_of
from tensorese.training.labels import Scale, only
from tensorese.training.physics import FitJob, PhysicsFit, physics_set, train_physics
from tensorese.training.recipes.base import DataSelection, Recipe, Trained, TrainingJob
from tensorese.training.recipes.physics import PhysicsRecipe
from tensorese.training.trees import can_grow, grow_forest, grow_shared

SCALES: tuple[Scale, ...] = ("share", "centred")
GPU_VOTES = 32
GPU_FIT: Mapping[str, Any] = {"loss": "none", "octaves": 0.0, "centred": 100.0}
"""A GPU's trees count for more, and its networks learn only how a task's programs compare; both
were chosen on folds of training tasks."""


@dataclass(frozen=True, kw_only=True)
class TreeFit:
    trees: int = 300
    """Of each scale of labels."""
    votes: int = 16
    """Networks that they count for."""
    num_leaves: int = 63
    max_depth: int = 8
    """Shallow enough to be walked fast by numpy."""
    learning_rate: float = 0.08
    min_data_in_leaf: int = 20

    def setting(self, seed: int) -> dict[str, float]:
        return {
            "num_leaves": self.num_leaves,
            "max_depth": self.max_depth,
            "learning_rate": self.learning_rate,
            "min_data_in_leaf": self.min_data_in_leaf,
            "seed": seed,
        }


@dataclass(frozen=True, kw_only=True)
class EnsembleRecipe(Recipe):
    preset: str = "default"
    fit: PhysicsFit = field(default_factory=lambda: PhysicsRecipe().fit)
    grow: TreeFit = field(default_factory=TreeFit)

    @classmethod
    def named(cls, kind: str, preset: str, selection: DataSelection) -> Self:
        if preset == "ship":
            selection = replace(selection, fold=-1)
        return cls(selection=selection, preset=preset)

    def train(self, job: TrainingJob) -> Trained:
        if not can_grow():
            raise DataError(
                "train ensemble grows trees by LightGBM, which is not installed; "
                "pip install 'tensorese[baselines]', or train physics"
            )
        recipe = self.for_machine(job.programs.machine)
        wanted = job.programs.platforms
        programs, tasks = job.programs, job.sides.seen
        if self.preset == "ship":
            programs = read_programs(job.stores)
            tasks = tuple(range(len(programs.tasks)))
        data = physics_set(programs)
        run = FitJob(programs=programs, tasks=tasks, seed=self.seed)
        networks = train_physics(
            data, [run], recipe.fit, job.device, checkpoint=job.checkpoint, progress=job.progress
        )[0]
        forests = recipe._forests(data.features, programs, tasks, wanted)
        if len(wanted) == 1 and networks.platforms != wanted:
            networks = networks.with_head(wanted[0])
        trees = Trees(networks.needs.name, forests)
        members = [Member(model=networks), Member(model=trees, votes=recipe.grow.votes)]
        return Trained(
            model=Ensemble(members),
            notes=self._notes(programs, wanted),
            learnt=programs if self.preset == "ship" else None,
        )

    def for_machine(self, machine: Machine) -> Self:
        """With a GPU's own defaults where nothing else was set."""
        if machine == "cpu":
            return self
        usual = PhysicsRecipe().fit
        left = {k: v for k, v in GPU_FIT.items() if getattr(self.fit, k) == getattr(usual, k)}
        votes = GPU_VOTES if self.grow.votes == TreeFit().votes else self.grow.votes
        return replace(self, fit=replace(self.fit, **left), grow=replace(self.grow, votes=votes))

    def _forests(
        self,
        features: Floats32,
        programs: ProgramSet,
        tasks: Sequence[int],
        wanted: tuple[str, ...],
    ) -> dict[str, Forest]:
        """Trees of a platform's own labels beside those that all platforms share."""
        rounds, setting = self.grow.trees, self.grow.setting(self.seed)
        shared: dict[str, Forest] = {}
        if len(programs.platforms) > 1:
            shared = grow_shared(features, programs, tasks, rounds, setting, SCALES)
            if programs.platforms == wanted:
                return shared
        forests = {}
        for platform in wanted:
            mine = only(programs, platform)
            own = grow_forest(features, mine, tasks, rounds, setting, SCALES)
            forests[platform] = mean_of([own, shared[platform]]) if shared else own
        return forests

    def _notes(self, programs: ProgramSet, wanted: tuple[str, ...]) -> tuple[str, ...]:
        others = [name for name in programs.platforms if name not in wanted]
        return (f"also learnt from {', '.join(others)}",) if others else ()


RECIPE = EnsembleRecipe
