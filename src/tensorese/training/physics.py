"""Training of models that see physical features alone: what ships, and what onboarding fits.

No matrix is made: a program is a row of features, so that thousands of programs of hundreds of
tasks train in a minute, on a CPU too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from tensorese.evaluation.ranked import features_of
from tensorese.features.matrix import Encoder, MatrixSpec
from tensorese.features.programs import Encoded, ProgramSet
from tensorese.models.mtl_tlp import MTLTLP
from tensorese.models.predict import as_batch, predict
from tensorese.models.tlp import TLP, TLPConfig
from tensorese.models.trunk import TrunkConfig
from tensorese.training.groups import GroupConfig, Groups
from tensorese.training.head_coupling import start_alike
from tensorese.training.stacked import ManyTrainer
from tensorese.training.trainer import Loss, TrainConfig, Trainer

Floats = npt.NDArray[np.float32]
SCALE = TrunkConfig().scale
_CONSTANT = 1e6  # the spread of a feature that has none: it is read as 0


@dataclass(frozen=True, kw_only=True)
class SmallRecipe:
    """What is chosen on validation tasks."""

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
    """Pull of the heads to their mean; they start alike then. See `together`."""

    def config(self, spec: MatrixSpec) -> TLPConfig:
        trunk = TrunkConfig(
            style="physics",
            width=self.width,
            blocks=self.blocks,
            dropout=self.dropout,
            physics_noise=self.noise / SCALE,
        )
        return TLPConfig(trunk=trunk, spec=spec, members=self.networks)

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


@dataclass(frozen=True, kw_only=True, eq=False)
class SmallSet:
    """Programs with their features, as a trainer takes them."""

    programs: ProgramSet
    encoded: Encoded
    spec: MatrixSpec

    @property
    def features(self) -> Floats:
        return self.encoded.values

    @cached_property
    def centre(self) -> Floats:
        return np.asarray(self.features.mean(0))

    @cached_property
    def spread(self) -> Floats:
        deviation = self.features.std(0)
        return np.asarray(np.where(deviation > 1e-4, deviation, np.float32(_CONSTANT)))

    @cached_property
    def standard(self) -> Encoded:
        """The features centred and scaled, as a trunk reads them best."""
        values = (self.features - self.centre) / (self.spread * np.float32(SCALE))
        return replace(self.encoded, values=values.astype(np.float32))


def small_set(programs: ProgramSet) -> SmallSet:
    """The features of all programs; every program under one empty template."""
    machine = programs.machine
    values = features_of(programs, machine)
    spec = MatrixSpec(length=1, names=1, numbers=4, machine=machine)
    empty = Encoder(replace(spec, context=False)).template("metaschedule", "[[],[]]", ())
    nobody = np.zeros(len(programs), dtype=np.int64)
    encoded = Encoded(templates=(empty,), pair=nobody, values=values, strangers={})
    return SmallSet(programs=programs, encoded=encoded, spec=spec)


def only(programs: ProgramSet, platform: str) -> ProgramSet:
    """The same programs with one platform's labels."""
    head = programs.head(platform)
    return replace(
        programs,
        platforms=(platform,),
        latency=programs.latency[:, [head]],
        failed=programs.failed[:, [head]],
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """One model to be trained: labels, tasks, seed."""

    programs: ProgramSet
    tasks: tuple[int, ...]
    seed: int = 0


def train_small(
    given: SmallSet, runs: Sequence[Run], recipe: SmallRecipe, device: str = "cpu"
) -> list[TLP]:
    """All runs; on a GPU those with as many heads are trained side by side."""
    if not device.startswith("cuda"):
        return [_train_one(given, run, recipe, device) for run in runs]
    models: dict[int, TLP] = {}
    for heads in sorted({len(run.programs.platforms) for run in runs}):
        mine = [k for k, run in enumerate(runs) if len(run.programs.platforms) == heads]
        found = _train_many(given, [runs[k] for k in mine], recipe, device)
        models.update(zip(mine, found, strict=True))
    return [models[k] for k in range(len(runs))]


def build_small(given: SmallSet, recipe: SmallRecipe, platforms: tuple[str, ...], seed: int) -> TLP:
    torch.manual_seed(seed)
    kind = TLP if len(platforms) == 1 else MTLTLP
    model = kind(recipe.config(given.spec), platforms)
    return start_alike(model) if recipe.together else model


def _train_one(given: SmallSet, run: Run, recipe: SmallRecipe, device: str) -> TLP:
    model = build_small(given, recipe, run.programs.platforms, run.seed)
    return _tune_standard(given, run, recipe, model, device)


def to_standard(model: TLP, given: SmallSet, *, back: bool = False) -> TLP:
    """The same function of standardised features, or `back` of the features as they are.

    Training wants them standardised; folded into the first layer, nobody else has to know.
    """
    centre, spread = torch.from_numpy(given.centre), torch.from_numpy(given.spread)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if not name.endswith("trunk.physics.net.0.weight"):
                continue
            bias = model.get_parameter(name.removesuffix("weight") + "bias")
            where = weight.device
            if back:
                bias.sub_((weight / spread.to(where)) @ centre.to(where))
                weight.div_(spread.to(where) * SCALE)
            else:
                bias.add_(weight @ (centre.to(where) * SCALE))
                weight.mul_(spread.to(where) * SCALE)
    return model


def tune_weights(
    given: SmallSet, run: Run, recipe: SmallRecipe, model: TLP, device: str = "cpu"
) -> TLP:
    """Trains what of the model asks for gradients, from where it stands."""
    to_standard(model, given)
    return _tune_standard(given, run, recipe, model, device)


def _tune_standard(given: SmallSet, run: Run, recipe: SmallRecipe, model: TLP, device: str) -> TLP:
    groups = group_config([run], recipe)
    trainer = Trainer(
        model,
        run.programs,
        given.standard,
        train_tasks=run.tasks,
        config=recipe.train(groups, epoch_steps([run], groups), run.seed),
        device=device,
    )
    with _one_thread():
        return to_standard(trainer.fit().eval(), given, back=True)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Networks this small lose more by sharing than they gain, tenfold on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def group_config(runs: Sequence[Run], recipe: SmallRecipe) -> GroupConfig:
    """Groups of a power of two that nine tasks in ten fit into, 16 to 256."""
    counts = np.concatenate(
        [np.bincount(run.programs.task[np.isin(run.programs.task, run.tasks)]) for run in runs]
    )
    long = float(np.quantile(counts[counts > 0], 0.9))
    size = int(2 ** np.clip(np.ceil(np.log2(long)), 4, 8))
    return GroupConfig(size=size, per_batch=max(1, recipe.rows // size))


def epoch_steps(runs: Sequence[Run], groups: GroupConfig) -> int:
    return max(
        Groups(run.programs, run.tasks, groups, seed=0, failed=True).per_epoch for run in runs
    )


def _train_many(
    given: SmallSet, runs: Sequence[Run], recipe: SmallRecipe, device: str
) -> list[TLP]:
    platforms = runs[0].programs.platforms

    def build(seed: int) -> TLP:
        return build_small(given, recipe, platforms, seed)

    jobs = [(run.programs, run.tasks, run.seed) for run in runs]
    groups = group_config(runs, recipe)
    config = recipe.train(groups, epoch_steps(runs, groups), runs[0].seed)
    many = ManyTrainer(build, given.standard, jobs, config, device)
    many.fit()
    found = []
    for k, run in enumerate(runs):
        model = build_small(given, recipe, run.programs.platforms, run.seed)
        model.load_state_dict(many.weights(k))
        found.append(to_standard(model.eval(), given, back=True))
    return found


def small_scores(model: TLP, given: SmallSet, platform: str) -> npt.NDArray[np.float64]:
    """`[n]`: the model's score of every program, by one head."""
    batch = as_batch(given.encoded).to(next(model.parameters()).device)
    index = torch.arange(len(given.programs), device=batch.sketch_N.device)
    scores = predict(model, batch, index)
    return scores[:, model.head_index(platform)].cpu().numpy().astype(np.float64)
