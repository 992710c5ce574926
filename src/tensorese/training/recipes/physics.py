"""`train physics`: small networks on hardware features, one head a platform."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import ClassVar, Self

from tensorese.models.physics_net import PhysicsNet
from tensorese.training.physics import (
    FitJob,
    PhysicsFit,
    PhysicsSet,
    physics_set,
    train_physics,
    tune_physics,
)
from tensorese.training.recipes.base import DataSelection, Recipe, Trained, TrainingJob
from tensorese.training.transfer import Freeze, Start, picked_heads, same_features, sizes_of


@dataclass(frozen=True, kw_only=True)
class PhysicsRecipe(Recipe):
    freezes: ClassVar[tuple[Freeze, ...]] = ("none", "all-but-head")
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
        if job.start is not None:
            return self._going_on(job, job.start, data, run)
        model = train_physics(
            data, [run], self.fit, job.device, checkpoint=job.checkpoint, progress=job.progress
        )
        return Trained(model=model[0])

    def _going_on(self, job: TrainingJob, start: Start, data: PhysicsSet, run: FitJob) -> Trained:
        theirs, heads = start.model, start.heads(job.programs.platforms, job.stores)
        assert isinstance(theirs, PhysicsNet)  # of the same kind
        same_features(start, f"physics-{data.machine}", theirs.needs.name)
        mine, usual = (fit.config(data.machine) for fit in (self.fit, PhysicsRecipe().fit))
        config = sizes_of(start.folder, theirs.config, mine, usual)
        weights = picked_heads(theirs.weights, [theirs.head_index(old) for old in heads.values()])
        model = tune_physics(
            data,
            run,
            self.fit,
            PhysicsNet.build(tuple(heads), asdict(config), weights),
            heads_only=start.freeze == "all-but-head",
            device=job.device,
            checkpoint=job.checkpoint,
            progress=job.progress,
        )
        return Trained(model=model, notes=(start.note(heads),))


RECIPE = PhysicsRecipe
