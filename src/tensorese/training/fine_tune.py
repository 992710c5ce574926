"""A trained model that goes on learning: its heads or all of it, on the labels of new tasks."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property

from tensorese.features.matrix import Encoder
from tensorese.features.programs import Encoded, ProgramSet, encode_programs
from tensorese.models.base import Model, ModelError
from tensorese.models.physics_net import PhysicsNet
from tensorese.models.tlp import TLP, with_head
from tensorese.training.physics import (
    FitJob,
    PhysicsFit,
    PhysicsSet,
    epoch_steps,
    group_config,
    physics_set,
    tune_physics,
)
from tensorese.training.trainer import Trainer


class NewLabels:
    """Programs to learn from, written once for each way that a model reads them."""

    def __init__(self, programs: ProgramSet) -> None:
        self.programs = programs
        self._encoded: dict[str, Encoded] = {}

    @cached_property
    def physics(self) -> PhysicsSet:
        return physics_set(self.programs)

    def encoded(self, model: TLP) -> Encoded:
        if model.needs.version not in self._encoded:
            encoder = Encoder(model.network.config.spec)
            self._encoded[model.needs.version] = encode_programs(self.programs, encoder)
        return self._encoded[model.needs.version]


def one_head(model: Model, head: str, platform: str) -> PhysicsNet | TLP:
    """The trunk with a copy of one of its heads, under the platform's name."""
    if isinstance(model, PhysicsNet):
        return model.with_head(head, name=platform)
    if isinstance(model, TLP):
        return with_head(model, head, name=platform)
    raise ModelError(
        f"a platform is learnt by networks, but a model of kind {model.kind} has none; "
        "start from an ensemble, physics, tlp or mtl-tlp"
    )


def fine_tune(
    model: PhysicsNet | TLP,
    labels: NewLabels,
    tasks: Sequence[int],
    fit: PhysicsFit,
    *,
    heads_only: bool,
    seed: int = 0,
) -> PhysicsNet | TLP:
    """A copy of the model, trained on from where it stands."""
    job = FitJob(programs=labels.programs, tasks=tuple(tasks), seed=seed)
    if isinstance(model, PhysicsNet):
        return tune_physics(labels.physics, job, fit, model, heads_only=heads_only)
    network = copy.deepcopy(model.network)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(not heads_only or ".heads." in name)
    groups = group_config([job], fit)
    config = fit.train(groups, epoch_steps([job], groups), seed)
    trainer = Trainer(
        network, labels.programs, labels.encoded(model), train_tasks=job.tasks, config=config
    )
    trainer.fit()
    return type(model)(network.requires_grad_(True).eval())
