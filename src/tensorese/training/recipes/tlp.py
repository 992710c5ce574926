"""`train tlp` and `train mtl-tlp`: networks that read schedules as a language."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch

from tensorese.features.base import physics_rows
from tensorese.features.matrix import PAPER_TYPES, Encoder
from tensorese.features.programs import Encoded, ProgramSet, encode_programs
from tensorese.models.network import ProgramBatch
from tensorese.models.tlp import MTLTLP, TLP, TLPConfig, TLPNetwork, paper_config
from tensorese.training.groups import GroupConfig
from tensorese.training.hidden_numbers import HiddenConfig, learn_hidden
from tensorese.training.labels import only
from tensorese.training.recipes.base import (
    DataSelection,
    Recipe,
    Sides,
    Trained,
    TrainingJob,
    judge_model,
)
from tensorese.training.trainer import TrainConfig, Trainer
from tensorese.training.transfer import (
    FREEZES,
    Freeze,
    Start,
    picked_heads,
    same_features,
    sizes_of,
)
from tensorese.training.transferred_labels import fill_few
from tensorese.training.trees import can_grow

HOT = len(PAPER_TYPES["cpu"])
_PAPER_FIXES = (
    *("members", "width", "heads", "layers", "feed", "blocks", "context_tokens", "dropout"),
    *("noise", "physics_noise", "knots", "features", "transfer", "failed_weight", "pretrain"),
)
PAPER_FIT = TrainConfig(
    epochs=50,
    groups=GroupConfig(size=1024, per_batch=1, balance=0.0, by_task=False),
    loss="rank",
    regret_weight=0.0,
    failed_weight=0.0,
    lr=7e-4,
    weight_decay=1e-6,
    clip=0.5,
    schedule="constant",
    average=0.0,
    bf16=False,  # the matrix holds raw integers
    patience=50,
)
"""As published: a constant rate, batches of all tasks mixed, the ranking loss alone.

Failed programs are left aside. Of the epochs the best on validation tasks is kept; the authors
picked theirs by hand, on programs of training tasks."""


@dataclass(frozen=True, kw_only=True)
class TLPRecipe(Recipe):
    freezes: ClassVar[tuple[Freeze, ...]] = FREEZES
    kind: Literal["tlp", "mtl-tlp"] = "tlp"
    preset: str = "default"
    features: Literal["language", "both"] = "language"
    """The schedule's primitives alone, or hardware features beside them."""
    transfer: bool = True
    """mtl-tlp: a platform with few labels also learns the others', transferred."""
    crop: str = ""
    """Rows and columns of the published matrix, 25x22 on a CPU and 40x20 on a GPU if empty; the
    one-hot takes 11 of the columns."""
    pretrain: int = 0
    """Steps of predicting hidden decisions before any label is learnt from."""
    config: TLPConfig = field(default_factory=TLPConfig)
    fit: TrainConfig = field(default_factory=TrainConfig)

    @classmethod
    def named(cls, kind: str, preset: str, selection: DataSelection) -> Self:
        known: Literal["tlp", "mtl-tlp"] = "mtl-tlp" if kind == "mtl-tlp" else "tlp"
        fit = PAPER_FIT if preset == "paper" else TrainConfig()
        return cls(selection=selection, kind=known, preset=preset, fit=fit)

    def __post_init__(self) -> None:
        if self.crop and _sizes(self.crop)[1] <= HOT:
            raise ValueError(f"columns must be more than the one-hot's {HOT}")

    def fixed(self) -> dict[str, str]:
        fails = {"fails": "a network learns which programs fail if failed_weight is above 0"}
        if self.preset == "paper":
            why = "the preset paper is the published network"
            return {**fails, **dict.fromkeys(_PAPER_FIXES, why)}
        paper = dict.fromkeys(("crop", "mixer"), "it needs --preset paper")
        if self.features == "language":
            why = "it needs --features both"
            return {**fails, **paper, **dict.fromkeys(("physics_noise", "knots"), why)}
        return {**fails, **paper, "pretrain": "it needs --features language"}

    def train(self, job: TrainingJob) -> Trained:
        programs, sides = job.programs, job.sides
        network, began = self._begun(job)
        encoded = encode_programs(programs, Encoder(network.config.spec))
        if self.pretrain and not (job.checkpoint and job.checkpoint.exists()):
            hidden = HiddenConfig(steps=self.pretrain, seed=self.seed)
            learn_hidden(network, programs, encoded, sides.train, hidden, job.device)
        labels, transferred = self._labels(programs, sides.train)
        trainer = self._trainer(job, network, labels, encoded)
        trainer.fit(resume_from=job.checkpoint, progress=job.progress)
        model = self._model(network.requires_grad_(True))
        metrics: dict[str, Any] = {"epochs": len(trainer.history), "steps": trainer.step}
        notes = [
            f"unknown to the vocabulary, read as such: {n} ({k} times)"
            for n, k in sorted(encoded.strangers.items())
        ]
        notes += [note for note in (transferred, began, _cropped(programs, encoded)) if note]
        alone = not job.start and self.kind == "mtl-tlp" and len(programs.platforms) > 1
        if alone and sides.validation:
            metrics["transfer"] = self._check_transfer(job, model, encoded)
        curve = tuple(trainer.history)
        return Trained(model=model, metrics=metrics, notes=tuple(notes), curve=curve)

    def _begun(self, job: TrainingJob) -> tuple[TLPNetwork, str]:
        """Random weights or another model's, and a line on where these come from."""
        programs, start = job.programs, job.start
        if start is None:
            return self._network(self.config_for(programs), programs.platforms), ""
        torch.manual_seed(self.seed)
        heads = start.heads(programs.platforms, job.stores)
        network = self._model(_with_heads(start, heads, self._going_on(start, programs))).network
        for name, parameter in network.named_parameters():
            part = "head" if ".heads." in name else "rest"
            part = "encoder" if ".trunk.rows." in name or ".trunk.encode." in name else part
            frozen = {"none": (), "encoder": ("encoder",), "all-but-head": ("encoder", "rest")}
            parameter.requires_grad_(part not in frozen[start.freeze])
        return network, start.note(heads)

    def _going_on(self, start: Start, programs: ProgramSet) -> TLPConfig:
        """The other model's, and its matrix; hardware features only as it had them."""
        theirs = start.model
        assert isinstance(theirs, TLP)  # of the same kind
        spec = theirs.network.config.spec
        if self.features == "both":
            same_features(start, "both", "both" if spec.physics else "language")
        if spec.physics:
            same_features(start, f"physics-{programs.machine}", f"physics-{spec.machine}")
        mine = paper_config(programs.machine) if self.preset == "paper" else self.config
        wanted = replace(mine, spec=spec)
        sizes: TLPConfig = sizes_of(start.folder, theirs.network.config, wanted, TLPRecipe().config)
        return sizes

    def config_for(self, programs: ProgramSet) -> TLPConfig:
        """The network that is trained on these programs."""
        if self.preset == "paper":
            config = replace(paper_config(programs.machine), mixer=self.config.mixer)
            rows, columns = _sizes(self.crop) if self.crop else (config.spec.length, 0)
            numbers = columns - HOT if columns else config.spec.numbers
            return replace(config, spec=replace(config.spec, length=rows, numbers=numbers))
        spec = programs.spec(physics=self.features == "both")
        return replace(self.config, spec=spec, fails=self.fit.failed_weight > 0)

    def _network(self, config: TLPConfig, platforms: tuple[str, ...]) -> TLPNetwork:
        torch.manual_seed(self.seed)
        return TLPNetwork(config, platforms)

    def _model(self, network: TLPNetwork) -> TLP:
        return MTLTLP(network) if self.kind == "mtl-tlp" else TLP(network)

    def _labels(self, programs: ProgramSet, tasks: Sequence[int]) -> tuple[ProgramSet, str]:
        """What a model of several platforms learns from, and what was added to it.

        A platform with few labels gets those of the others, transferred; none is judged by them.
        """
        wanted = self.kind == "mtl-tlp" and self.transfer and self.preset != "paper"
        if not (wanted and can_grow() and len(programs.platforms) > 1):
            return programs, ""
        rows = physics_rows(programs, programs.machine)
        return fill_few(rows, programs, tasks, seed=self.seed)

    def _trainer(
        self, job: TrainingJob, network: TLPNetwork, labels: ProgramSet, encoded: Encoded
    ) -> Trainer:
        return Trainer(
            network,
            labels,
            encoded,
            train_tasks=job.sides.train,
            config=replace(self.fit, seed=self.seed),
            device=job.device,
            validate=self._validator(job.programs, job.sides, network),
            watched=job.sides.validation,
            wrap=job.wrap,
            rank=job.rank,
            world=job.world,
        )

    def _validator(self, programs: ProgramSet, sides: Sides, network: TLPNetwork) -> Any:
        model = self._model(network)

        def validate(_: Any, batch: ProgramBatch) -> dict[str, float]:
            judged = [
                judge_model(model, programs, platform, sides.validation, batch)
                for platform in programs.platforms
            ]
            scored = [j for j in judged if j]
            if not scored:
                return {"top1": 0.0, "top5": 0.0}
            return {key: float(np.mean([j[key] for j in scored])) for key in ("top1", "top5")}

        return validate if sides.validation else None

    def _check_transfer(self, job: TrainingJob, model: TLP, encoded: Encoded) -> str:
        """Trains the platform with the fewest labels alone and compares on validation tasks."""
        programs, sides = job.programs, job.sides
        target = programs.platforms[int(np.isfinite(programs.latency).sum(0).argmin())]
        alone = only(programs, target)
        network = self._network(model.network.config, (target,))
        Trainer(
            network,
            alone,
            encoded,
            train_tasks=sides.train,
            config=replace(self.fit, seed=self.seed),
            device=job.device,
        ).fit()
        before = judge_model(TLP(network), alone, target, sides.validation)
        after = judge_model(model, programs, target, sides.validation)
        if not before or not after:
            return f"{target}: no validation task has its records, transfer not judged"
        hurts = after["top1"] < before["top1"] - 0.01
        verdict = "hurts: train it alone or with fewer platforms" if hurts else "does not hurt"
        return (
            f"{target}: validation top-1 {before['top1']:.3f} alone, {after['top1']:.3f} with "
            f"{', '.join(p for p in programs.platforms if p != target)}; adding them {verdict}"
        )


def _with_heads(start: Start, heads: dict[str, str], config: TLPConfig) -> TLPNetwork:
    """A copy whose platforms begin with these heads."""
    theirs = start.model
    places = [theirs.head_index(old) for old in heads.values()]
    weights = picked_heads(theirs.tensors(half=False), places)
    return MTLTLP.build(tuple(heads), asdict(config), weights).network


def _sizes(crop: str) -> tuple[int, int]:
    """`25x22`: rows, and columns with those of the one-hot."""
    rows, cross, columns = crop.partition("x")
    if not (cross and rows.isdigit() and columns.isdigit() and int(rows)):
        raise ValueError("it is written ROWSxCOLUMNS, like 25x22")
    return int(rows), int(columns)


def _cropped(programs: ProgramSet, encoded: Encoded) -> str:
    """How many decisions do not reach the matrix."""
    count = np.array([len(members) for members in programs.members])
    there = np.array([pair.sketch.n_decisions for pair in programs.pairs])
    read = np.array([len({d for d, _ in template.sources}) for template in encoded.templates])
    lost = 1.0 - (count * read).sum() / max(1, (count * there).sum())
    length, numbers = encoded.templates[0].numbers.shape
    return (
        f"{lost:.0%} of the decisions are beyond the matrix of {length} rows of {numbers} numbers"
        if lost > 0.005
        else ""
    )


RECIPE = TLPRecipe
