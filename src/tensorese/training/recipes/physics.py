"""`train physics`: small networks on hardware features, one head a platform."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from tensorese.training.physics import FitJob, PhysicsFit, physics_set, train_physics
from tensorese.training.recipes.base import DataSelection, Recipe, Trained, TrainingJob


@dataclass(frozen=True, kw_only=True)
class PhysicsRecipe(Recipe):
    fit: PhysicsFit = field(
        default_factory=lambda: PhysicsFit(
            # Speeds and their logarithms, no ranking loss: see docs/models.md.
            width=128,
            loss="mse",
            octaves=10.0,
            regret=0.0,
            dropout=0.2,
            rows=1536,
        )
    )

    @classmethod
    def named(cls, kind: str, preset: str, selection: DataSelection) -> Self:
        return cls(selection=selection)

    def train(self, job: TrainingJob) -> Trained:
        data = physics_set(job.programs)
        run = FitJob(programs=job.programs, tasks=job.sides.seen, seed=self.seed)
        model = train_physics(
            data, [run], self.fit, job.device, checkpoint=job.checkpoint, progress=job.progress
        )
        return Trained(model=model[0])


RECIPE = PhysicsRecipe
