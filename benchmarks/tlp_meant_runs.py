"""How the rows of `tlp_meant.py` are trained: alike networks side by side on a GPU, else in turn.

Training, validation and test tasks are those of the house: test rows are those the store marks, one
in eight training tasks validates (as `tensorese train` deals them). The weights that are judged are
the last, or, where a system says so (`patience`), those of the best validation top-1.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from common import ROOT
from tensorese.evaluation.judge import judge_scores, judged_index
from tensorese.evaluation.metrics import mean_top_k
from tensorese.features.matrix import Encoder, MatrixSpec
from tensorese.features.programs import Encoded, ProgramSet, encode_programs, read_programs
from tensorese.models.network import ProgramBatch, as_batch
from tensorese.models.tlp import MTLTLP, TLPConfig, TLPNetwork
from tensorese.records.store import Store
from tensorese.training.groups import GroupConfig
from tensorese.training.hidden_numbers import HiddenConfig, learn_hidden
from tensorese.training.physics import FitJob, epoch_steps
from tensorese.training.recipes.base import DataSelection, make_sides
from tensorese.training.recipes.tlp import HOT, TLPRecipe
from tensorese.training.stacked import StackedTrainer
from tensorese.training.trainer import TrainConfig, Trainer

POINTS = 25
"""Of a learning curve, at most."""
ROWS = GroupConfig(size=128, per_batch=8)
"""Of `data/` nine tasks in ten have fewer programs than that."""
Weights: TypeAlias = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class System:
    """A network and how it is trained."""

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)
    """Of the default network; of the published one its mixer alone."""
    fit: Mapping[str, Any] = field(default_factory=dict)
    paper: bool = False
    beside: bool = False
    """Hardware features beside the language."""
    crop: str = ""
    """Of the published matrix; `whole`: as large as the store's programs are."""
    steps: int = 0
    """Of training, whatever the number of labels; 0: the epochs of `fit`."""
    hidden: int = 0
    """Steps of predicting hidden decisions first."""
    share: float = 1.0
    """Of the training tasks."""

    def recipe(self, seed: int = 0) -> TLPRecipe:
        preset = "paper" if self.paper else "default"
        recipe = TLPRecipe.named("mtl-tlp", preset, DataSelection(fold=-1))
        fit = recipe.fit if self.paper else TrainConfig(groups=ROWS, epochs=50)
        return replace(
            recipe,
            config=replace(recipe.config, **self.config),
            fit=replace(fit, seed=seed, **self.fit),
            features="both" if self.beside else "language",
            crop="" if self.crop == "whole" else self.crop,
        )

    def recipe_for(self, data: Data) -> TLPRecipe:
        recipe = self.recipe()
        if self.crop != "whole":
            return recipe
        spec = data.programs.spec()  # its first row is the task's
        return replace(recipe, crop=f"{spec.length - 1}x{HOT + spec.names + spec.numbers}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    key: Mapping[str, Any]
    labels: ProgramSet
    tasks: tuple[int, ...]
    judged: tuple[str, ...]
    """Platforms, each a row."""
    seed: int = 0
    start: Weights | None = None
    head: str = ""
    """Which head says, where the platform's own was not taught."""


@dataclass(eq=False)
class Trained:
    run: Run
    config: TLPConfig
    keep_best: bool
    curve: list[dict[str, float]] = field(default_factory=list)
    best: tuple[float, int] = (-1.0, 0)
    weights: Weights = field(default_factory=dict)
    seconds: float = 0.0
    beside: int = 1
    """Networks that were trained at the same time; the seconds are its share of theirs."""

    def add(self, entry: dict[str, float], weights: Weights) -> None:
        self.curve.append(entry)
        if entry["top1"] > self.best[0] or not self.keep_best:
            self.best = (entry["top1"], int(entry["epoch"]))
            self.weights = {name: tensor.detach().clone() for name, tensor in weights.items()}

    def network(self, weights: Weights | None = None) -> TLPNetwork:
        network = TLPNetwork(self.config, self.run.labels.platforms)
        network.load_state_dict(dict(weights or self.weights))
        return network


class Data:
    """A store's programs, written once for every way that a network reads them."""

    def __init__(self, name: str, device: str, nth_task: int = 1) -> None:
        self.name, self.device, self.nth = name, device, nth_task
        with Store.open(ROOT / "data" / name) as store:
            self.programs = read_programs([store], split="train")
            self.test = read_programs([store], split="test")
            self.targets = store.targets()
        sides = make_sides(self.programs, DataSelection(fold=-1))
        self.train, self.validation = sides.train[::nth_task], sides.validation
        self.pretrained: dict[tuple[TLPConfig, int, int], Weights] = {}
        self._encoded: dict[MatrixSpec, Encoded] = {}
        self._batches: dict[tuple[MatrixSpec, bool], tuple[ProgramBatch, Any]] = {}

    @cached_property
    def all_tasks(self) -> tuple[int, ...]:
        return (*self.train, *self.validation)

    def encoded(self, spec: MatrixSpec) -> Encoded:
        if spec not in self._encoded:
            self._encoded[spec] = encode_programs(self.programs, Encoder(spec))
        return self._encoded[spec]

    def _judged(self, spec: MatrixSpec, test: bool) -> tuple[ProgramBatch, Any]:
        """Programs of validation or test tasks with any label, and which they are."""
        if (spec, test) not in self._batches:
            programs = self.test if test else self.programs
            tasks = range(len(programs.tasks)) if test else self.validation
            index = np.unique(
                np.concatenate([judged_index(programs, p, tasks) for p in programs.platforms])
            )
            encoded = encode_programs(programs, Encoder(spec)) if test else self.encoded(spec)
            batch = as_batch(encoded).select(torch.from_numpy(index)).to(self.device)
            self._batches[spec, test] = batch, index
        return self._batches[spec, test]

    def results(self, network: TLPNetwork, platform: str, *, test: bool, head: str = "") -> Any:
        programs = self.test if test else self.programs
        tasks = list(range(len(programs.tasks))) if test else list(self.validation)
        batch, index = self._judged(network.config.spec, test)
        scores = np.full(len(programs), -np.inf)
        scores[index] = MTLTLP(network.to(self.device)).rank(batch, head or platform)
        return judge_scores(programs, platform, scores, tasks)

    def validated(self, network: TLPNetwork, run: Run) -> dict[str, float]:
        each = [self.results(network, p, test=False, head=run.head) for p in run.judged]
        return {f"top{k}": float(np.mean([mean_top_k(r, k) for r in each])) for k in (1, 5)}


def train(data: Data, system: System, runs: Sequence[Run]) -> list[Trained]:
    """All runs; they have as many heads and differ in labels, tasks, seed and where they start."""
    recipe = system.recipe_for(data)
    config = recipe.config_for(data.programs)
    fit = recipe.fit
    if system.steps:
        jobs = [FitJob(programs=run.labels, tasks=run.tasks) for run in runs]
        fit = replace(fit, epochs=max(1, round(system.steps / epoch_steps(jobs, fit.groups))))
    alone = data.device == "cpu" or config.mixer == "lstm"
    began = time.monotonic()
    runs = [_pre_trained(data, system, config, run) for run in runs]
    trained = [Trained(run=run, config=config, keep_best=fit.patience > 0) for run in runs]
    if alone:
        for one in trained:
            _in_turn(data, fit, one)
    else:
        _side_by_side(data, fit, trained)
    for one in trained:
        one.seconds, one.beside = (time.monotonic() - began) / len(runs), len(runs)
    return trained


def _pre_trained(data: Data, system: System, config: TLPConfig, run: Run) -> Run:
    if not system.hidden or run.start is not None:
        return run
    return replace(run, start=pre_train(data, config, run.seed, system.hidden))


def pre_train(data: Data, config: TLPConfig, seed: int, steps: int) -> Weights:
    """Trunk and context on all programs of training tasks, none of their labels."""
    torch.manual_seed(seed)
    network = TLPNetwork(config, data.programs.platforms[:1])
    hidden = HiddenConfig(steps=steps, seed=seed)
    if (config, seed, steps) in data.pretrained:
        return data.pretrained[config, seed, steps]
    losses = learn_hidden(
        network, data.programs, data.encoded(config.spec), data.all_tasks, hidden, data.device
    )
    print(f"hidden decisions, seed {seed}: loss {losses[0]:.3f} to {losses[-1]:.3f}", flush=True)
    weights = {k: v.detach() for k, v in network.state_dict().items() if ".heads." not in k}
    data.pretrained[config, seed, steps] = weights
    return weights


def _every(epochs: int) -> int:
    return max(1, epochs // POINTS)


def _built(config: TLPConfig, run: Run) -> TLPNetwork:
    torch.manual_seed(run.seed)
    network = TLPNetwork(config, run.labels.platforms)
    if run.start:
        network.load_state_dict(dict(run.start), strict=False)
    return network


def _side_by_side(data: Data, fit: TrainConfig, trained: Sequence[Trained]) -> None:
    config, runs = trained[0].config, [one.run for one in trained]
    stacked = StackedTrainer(
        lambda seed: _built(config, replace(runs[0], seed=seed, start=None)),
        data.encoded(config.spec),
        [(run.labels, run.tasks, run.seed) for run in runs],
        fit,
        data.device,
        start=[dict(run.start or {}) for run in runs],
    )
    shown = _built(config, runs[0]).to(data.device)

    def after(done: int, loss_M: Tensor) -> None:
        if done % _every(fit.epochs) and done != fit.epochs:
            return
        for number, (one, loss) in enumerate(zip(trained, loss_M.tolist(), strict=True)):
            weights = stacked.weights(number)
            shown.load_state_dict(weights)
            shown.platforms = one.run.labels.platforms
            said = data.validated(shown, one.run)
            one.add({"epoch": done, "loss": round(loss, 5), **said}, weights)

    stacked.fit(after)


def _in_turn(data: Data, fit: TrainConfig, one: Trained) -> None:
    done = 0
    last: dict[str, float] = {"top1": 0.0}

    def validate(network: Any, _: ProgramBatch) -> dict[str, float]:
        nonlocal done, last
        done += 1
        if done % _every(fit.epochs) == 0 or done == fit.epochs:
            last = data.validated(network, one.run)
            one.add({"epoch": done, **last}, network.state_dict())
        return last

    trainer = Trainer(
        _built(one.config, one.run),
        one.run.labels,
        data.encoded(one.config.spec),
        train_tasks=one.run.tasks,
        config=replace(fit, seed=one.run.seed, patience=0),
        device=data.device,
        validate=validate,
    )
    trainer.fit()
    losses = {entry["epoch"]: entry["loss"] for entry in trainer.history}
    one.curve = [{**entry, "loss": round(losses[int(entry["epoch"])], 5)} for entry in one.curve]


def rows_of(data: Data, trained: Sequence[Trained], *, test: bool) -> Iterator[dict[str, Any]]:
    """One a judged platform: what validation said, and with `test` what test tasks say."""
    for one in trained:
        network = one.network()
        for platform in one.run.judged:
            row = {**one.run.key, "platform": platform, "store": data.name}
            row |= {"epochs": int(one.curve[-1]["epoch"]), "kept_epoch": one.best[1]}
            row |= {"parameters": sum(p.numel() for p in network.parameters())}
            row |= {"seconds": round(one.seconds, 1), "side_by_side": one.beside}
            checked = data.results(network, platform, test=False, head=one.run.head)
            row["validation"] = {f"top{k}": round(mean_top_k(checked, k), 4) for k in (1, 5)}
            row["curve"] = [
                [int(c["epoch"]), c["loss"], round(c["top1"], 4), round(c["top5"], 4)]
                for c in one.curve
            ]
            if test:
                found = data.results(network, platform, test=True, head=one.run.head)
                row |= figures(found)
            yield row


def figures(results: Sequence[Any]) -> dict[str, Any]:
    """Means over test tasks, and by task what intervals need."""
    return {
        **{f"top{k}": round(mean_top_k(results, k), 4) for k in (1, 5)},
        "pairwise": round(float(np.mean([r.pairwise for r in results])), 4),
        **{
            f"random_top{k}": round(float(np.mean([r.random[k] for r in results])), 4)
            for k in (1, 5)
        },
        "tasks": len(results),
        "ratios": {
            r.task: [round(x, 4) for x in (r.ratio(1), r.ratio(5), r.pairwise)] for r in results
        },
    }
