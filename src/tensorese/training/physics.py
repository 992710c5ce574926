"""Training of networks on hardware features: what ships, and what onboarding fits.

No matrix is made: a program is a row of features, so that thousands of programs of hundreds of
tasks train in minutes, on a CPU too. The torch networks here and the numpy ones of
`models/physics_net.py` are one specification: same configuration, same names of tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tensorese.arrays import Floats32
from tensorese.features.base import physics_rows
from tensorese.features.matrix import Encoder, MatrixSpec
from tensorese.features.physics import Machine, feature_names
from tensorese.features.programs import Encoded, ProgramSet
from tensorese.models.network import ProgramBatch, TorchNetwork
from tensorese.models.physics_net import SCALE, PhysicsConfig, PhysicsNet
from tensorese.training.groups import GroupConfig, Groups
from tensorese.training.head_coupling import start_alike
from tensorese.training.stacked import StackedTrainer
from tensorese.training.trainer import Loss, Progress, TrainConfig, Trainer

_CONSTANT = 1e6  # the spread of a feature that has none: it is read as 0


@dataclass(frozen=True, kw_only=True)
class PhysicsFit:
    """How networks are trained; what is set here was chosen on validation tasks."""

    networks: int = 4
    width: int = 64
    blocks: int = 2
    dropout: float = 0.1
    noise: float = 0.1
    """On the features, in standard deviations."""
    steps: int = 2400
    rows: int = 512
    """Programs in a step, in groups as long as most tasks fill."""
    lr: float = 1e-3
    weight_decay: float = 1e-2
    loss: Loss = "both"
    octaves: float = 0.0
    """Weight of the error on a logarithmic scale."""
    centred: float = 0.0
    """Weight of that error less its mean over a task's programs."""
    regret: float = 10.0
    together: float = 0.0
    """Pull of the heads to their mean; they start alike then. See `head_coupling`."""

    def config(self, machine: Machine) -> PhysicsConfig:
        return PhysicsConfig(
            machine=machine,
            networks=self.networks,
            width=self.width,
            blocks=self.blocks,
            dropout=self.dropout,
            noise=self.noise,
        )

    def train(self, groups: GroupConfig, per_epoch: int, seed: int) -> TrainConfig:
        return TrainConfig(
            epochs=max(1, round(self.steps / max(1, per_epoch))),
            groups=groups,
            lr=self.lr,
            weight_decay=self.weight_decay,
            loss=self.loss,
            octave_weight=self.octaves,
            centred_weight=self.centred,
            regret_weight=self.regret,
            together=self.together,
            seed=seed,
            bf16=False,
        )


class _Member(nn.Module):
    """`PhysicsNet`'s network, layer by layer."""

    def __init__(self, config: PhysicsConfig, heads: int) -> None:
        super().__init__()
        width, features = config.width, len(feature_names(config.machine))
        self.encoder = nn.Sequential(
            *(nn.Linear(features, 2 * width), nn.GELU(), nn.Dropout(config.dropout)),
            nn.Linear(2 * width, width),
        )
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(config.blocks))
        self.drop = nn.Dropout(config.dropout)
        self.heads = nn.ModuleList(
            nn.Sequential(
                *(nn.Linear(width, width), nn.GELU(), nn.Dropout(config.dropout)),
                nn.Linear(width, 2),
            )
            for _ in range(heads)
        )
        self.noise = config.noise / SCALE

    def forward(self, features_NF: Tensor) -> Tensor:
        if self.noise and self.training:
            shaken = torch.randn_like(features_NF) * (features_NF != 0)
            features_NF = features_NF + self.noise * shaken
        x_NW = self.encoder(features_NF * SCALE)
        for block in self.blocks:
            x_NW = x_NW + self.drop(functional.gelu(block(x_NW)))
        return torch.stack([head(x_NW) for head in self.heads], dim=-2)  # [N, H, 2]


class PhysicsNetwork(TorchNetwork):
    def __init__(self, config: PhysicsConfig, platforms: tuple[str, ...]) -> None:
        super().__init__()
        self.config: PhysicsConfig = config
        self.platforms = platforms
        heads = len(platforms)
        self.networks = nn.ModuleList(_Member(config, heads) for _ in range(config.networks))

    def forward(self, batch: ProgramBatch) -> Tensor:
        return torch.cat([member(batch.values_NV) for member in self.networks], dim=-1)


def to_model(network: PhysicsNetwork) -> PhysicsNet:
    weights = {name: t.detach().cpu().numpy() for name, t in network.state_dict().items()}
    return PhysicsNet(network.config, network.platforms, weights)


def to_network(model: PhysicsNet) -> PhysicsNetwork:
    network = PhysicsNetwork(model.config, model.platforms)
    network.load_state_dict({name: torch.from_numpy(t) for name, t in model.weights.items()})
    return network


@dataclass(frozen=True, kw_only=True, eq=False)
class PhysicsSet:
    """Programs with their features, as a trainer takes them."""

    programs: ProgramSet
    encoded: Encoded
    machine: Machine

    @property
    def features(self) -> Floats32:
        return self.encoded.values

    @cached_property
    def centre(self) -> Floats32:
        return np.asarray(self.features.mean(0))

    @cached_property
    def spread(self) -> Floats32:
        deviation = self.features.std(0)
        return np.asarray(np.where(deviation > 1e-4, deviation, np.float32(_CONSTANT)))

    @cached_property
    def standard(self) -> Encoded:
        """The features centred and scaled, as a trunk reads them best."""
        values = (self.features - self.centre) / (self.spread * np.float32(SCALE))
        return replace(self.encoded, values=values.astype(np.float32))


def physics_set(programs: ProgramSet) -> PhysicsSet:
    """The features of all programs; every program under one empty template."""
    machine = programs.machine
    values = physics_rows(programs, machine)
    spec = MatrixSpec(length=1, names=1, numbers=4, context=False, machine=machine)
    empty = Encoder(spec).template("metaschedule", "[[],[]]", ())
    nobody = np.zeros(len(programs), dtype=np.int64)
    encoded = Encoded(templates=(empty,), pair=nobody, values=values, strangers={})
    return PhysicsSet(programs=programs, encoded=encoded, machine=machine)


@dataclass(frozen=True, kw_only=True, eq=False)
class FitJob:
    """One model to be trained: labels, tasks, seed."""

    programs: ProgramSet
    tasks: tuple[int, ...]
    seed: int = 0


def train_physics(
    data: PhysicsSet,
    jobs: Sequence[FitJob],
    fit: PhysicsFit,
    device: str = "cpu",
    *,
    checkpoint: Path | None = None,
    progress: Progress | None = None,
) -> list[PhysicsNet]:
    """All jobs; on a GPU those with as many heads are trained side by side.

    One job can be interrupted and goes on from its checkpoint.
    """
    if len(jobs) == 1 or not device.startswith("cuda"):
        return [_train_one(data, job, fit, device, checkpoint, progress) for job in jobs]
    models: dict[int, PhysicsNet] = {}
    for heads in sorted({len(job.programs.platforms) for job in jobs}):
        mine = [k for k, job in enumerate(jobs) if len(job.programs.platforms) == heads]
        trained = _train_stacked(data, [jobs[k] for k in mine], fit, device)
        models.update(zip(mine, trained, strict=True))
    return [models[k] for k in range(len(jobs))]


def build_physics(
    data: PhysicsSet, fit: PhysicsFit, platforms: tuple[str, ...], seed: int
) -> PhysicsNetwork:
    torch.manual_seed(seed)
    network = PhysicsNetwork(fit.config(data.machine), platforms)
    if fit.together:
        start_alike(network)
    return network


def _train_one(
    data: PhysicsSet,
    job: FitJob,
    fit: PhysicsFit,
    device: str,
    checkpoint: Path | None,
    progress: Progress | None,
) -> PhysicsNet:
    network = build_physics(data, fit, job.programs.platforms, job.seed)
    return _fit_standard(data, job, fit, network, device, checkpoint, progress)


def to_standard(network: PhysicsNetwork, data: PhysicsSet, *, back: bool = False) -> PhysicsNetwork:
    """The same function of standardised features, or `back` of the features as they are.

    Training wants them standardised; folded into the first layer, nobody else has to know.
    """
    centre, spread = torch.from_numpy(data.centre), torch.from_numpy(data.spread)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if not name.endswith("encoder.0.weight"):
                continue
            bias = network.get_parameter(name.removesuffix("weight") + "bias")
            where = weight.device
            if back:
                bias.sub_((weight / spread.to(where)) @ centre.to(where))
                weight.div_(spread.to(where) * SCALE)
            else:
                bias.add_(weight @ (centre.to(where) * SCALE))
                weight.mul_(spread.to(where) * SCALE)
    return network


def tune_physics(
    data: PhysicsSet,
    job: FitJob,
    fit: PhysicsFit,
    model: PhysicsNet,
    *,
    heads_only: bool,
    device: str = "cpu",
    checkpoint: Path | None = None,
    progress: Progress | None = None,
) -> PhysicsNet:
    """Trains the heads, or all, on from where the model stands."""
    network = to_network(model)
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(not heads_only or _is_head(name))
    standard = to_standard(network, data)
    tuned = _fit_standard(data, job, fit, standard, device, checkpoint, progress)
    if not heads_only:
        return tuned
    # Standardising and back rounds the first layer: a frozen trunk is the one that was there.
    heads = {name: tensor for name, tensor in tuned.weights.items() if _is_head(name)}
    return PhysicsNet(model.config, model.platforms, {**model.weights, **heads})


def _is_head(name: str) -> bool:
    return ".heads." in name


def _fit_standard(
    data: PhysicsSet,
    job: FitJob,
    fit: PhysicsFit,
    network: PhysicsNetwork,
    device: str = "cpu",
    checkpoint: Path | None = None,
    progress: Progress | None = None,
) -> PhysicsNet:
    groups = group_config([job], fit)
    trainer = Trainer(
        network,
        job.programs,
        data.standard,
        train_tasks=job.tasks,
        config=fit.train(groups, epoch_steps([job], groups), job.seed),
        device=device,
    )
    with one_thread():
        trainer.fit(resume_from=checkpoint, progress=progress)
    return to_model(to_standard(network.eval(), data, back=True))


@contextmanager
def one_thread() -> Iterator[None]:
    """Networks this small lose more by sharing than they gain, tenfold on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def group_config(jobs: Sequence[FitJob], fit: PhysicsFit) -> GroupConfig:
    """Groups of a power of two that nine tasks in ten fit into, 16 to 256."""
    counts = np.concatenate(
        [np.bincount(job.programs.task[np.isin(job.programs.task, job.tasks)]) for job in jobs]
    )
    long = float(np.quantile(counts[counts > 0], 0.9))
    size = int(2 ** np.clip(np.ceil(np.log2(long)), 4, 8))
    return GroupConfig(size=size, per_batch=max(1, fit.rows // size))


def epoch_steps(jobs: Sequence[FitJob], groups: GroupConfig) -> int:
    return max(
        Groups(job.programs, job.tasks, groups, seed=0, failed=True).per_epoch for job in jobs
    )


def _train_stacked(
    data: PhysicsSet, jobs: Sequence[FitJob], fit: PhysicsFit, device: str
) -> list[PhysicsNet]:
    platforms = jobs[0].programs.platforms

    def build(seed: int) -> PhysicsNetwork:
        return build_physics(data, fit, platforms, seed)

    runs = [(job.programs, job.tasks, job.seed) for job in jobs]
    groups = group_config(jobs, fit)
    config = fit.train(groups, epoch_steps(jobs, groups), jobs[0].seed)
    stacked = StackedTrainer(build, data.standard, runs, config, device)
    stacked.fit()
    models = []
    for k, job in enumerate(jobs):
        network = build(job.seed)
        network.load_state_dict(stacked.weights(k))
        models.append(to_model(to_standard(network.eval(), data, back=True)))
    return models
