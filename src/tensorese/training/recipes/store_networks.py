"""`train KIND` for the networks of lowered programs: one recipe, each kind's own sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch

from tensorese.evaluation.inputs import of_tasks
from tensorese.features.base import FeatureSet, Ragged, feature_set
from tensorese.features.programs import DataError, ProgramSet
from tensorese.models.base import model_class
from tensorese.models.store_network import StoreBatch, StoreModel
from tensorese.training.groups import GroupConfig
from tensorese.training.recipes.base import (
    DataSelection,
    Recipe,
    Sides,
    Trained,
    TrainingJob,
    judge_model,
)
from tensorese.training.trainer import TrainConfig, Trainer
from tensorese.training.transfer import FREEZES, Freeze, sizes_of, still

Loss = Literal["rank", "rmse"]


def _fit() -> TrainConfig:
    """Rates of TenSet's authors, under the house's schedule and running mean."""
    return TrainConfig(
        epochs=50,
        groups=GroupConfig(size=128, per_batch=4),
        regret_weight=0.0,
        failed_weight=0.0,
        lr=7e-4,
        weight_decay=1e-6,
        clip=0.5,
    )


@dataclass(frozen=True, kw_only=True)
class StoreNetworkRecipe(Recipe):
    freezes: ClassVar[tuple[Freeze, ...]] = FREEZES
    kind: str = "tenset-mlp"
    loss: Loss = "rank"
    """LambdaRank, or the error of the sigmoid of a score as the best's share of its time; batches
    are of one task a group, or with `by_task=false` of all mixed."""
    config: Any = None
    """The kind's sizes."""
    fit: TrainConfig = field(default_factory=_fit)

    @classmethod
    def named(cls, kind: str, preset: str, selection: DataSelection) -> Self:
        return cls(selection=selection, kind=kind, config=_class(kind).preset(preset))

    def needs(self) -> tuple[FeatureSet, ...]:
        return (feature_set("lowered"),)

    def train(self, job: TrainingJob) -> Trained:
        ragged = job.programs.lowered
        assert ragged is not None  # `needs` asked for it
        programs, left_out = _with_rows(job.programs, ragged)
        model, began = self.begun(job, programs, ragged)
        trainer = self.trainer(job, model, programs, StoreBatch.of(ragged))
        trainer.fit(resume_from=job.checkpoint, progress=job.progress)
        model.network.freeze(())
        model.network.to("cpu").eval()
        metrics = {"epochs": len(trainer.history), "steps": trainer.step}
        return Trained(model=model, metrics=metrics, notes=(*left_out, *began))

    def begun(
        self, job: TrainingJob, programs: ProgramSet, ragged: Ragged
    ) -> tuple[StoreModel, tuple[str, ...]]:
        """Random weights or another model's, and a line on where these come from."""
        if job.start is None:
            return self.new(programs, ragged, job.sides), ()
        torch.manual_seed(self.seed)
        theirs, heads = job.start.model, job.start.heads(programs.platforms, job.stores)
        assert isinstance(theirs, StoreModel)  # of the same kind
        usual = _class(self.kind).preset("default")
        config = sizes_of(job.start.folder, theirs.config, self.config, usual)
        model = theirs.going_on(config, heads)
        model.network.freeze(still(model.network.parts(), job.start.freeze))
        return model, (job.start.note(heads),)

    def new(self, programs: ProgramSet, ragged: Ragged, sides: Sides) -> StoreModel:
        """Random weights, and the columns of what is learnt from."""
        torch.manual_seed(self.seed)
        model = _class(self.kind).new(self.config, programs.platforms)
        model.network.fit_columns(ragged.take(_labelled(programs, self._learnt(sides))))
        return model

    def _learnt(self, sides: Sides) -> tuple[int, ...]:
        """Tasks; those of validation too, unless they say when to stop."""
        return sides.train if self.fit.patience else sides.seen

    def trainer(
        self, job: TrainingJob, model: StoreModel, programs: ProgramSet, batch: StoreBatch
    ) -> Trainer:
        loss: Literal["rank", "mse"] = "mse" if self.loss == "rmse" else "rank"
        return Trainer(
            model.network,
            programs,
            batch,
            train_tasks=self._learnt(job.sides),
            config=replace(self.fit, loss=loss, seed=self.seed),
            device=job.device,
            validate=_validator(model, programs, job.sides) if self.fit.patience else None,
            wrap=job.wrap,
            rank=job.rank,
            world=job.world,
        )


def _class(kind: str) -> type[StoreModel]:
    cls = model_class(kind)
    assert issubclass(cls, StoreModel)
    return cls


def _labelled(programs: ProgramSet, tasks: tuple[int, ...]) -> Any:
    known = np.isfinite(programs.latency).any(1) & np.isin(programs.task, np.asarray(tasks))
    return np.flatnonzero(known)


def _with_rows(programs: ProgramSet, ragged: Ragged) -> tuple[ProgramSet, tuple[str, ...]]:
    """Labels of programs that have rows, and a line on those that have none."""
    none = ragged.counts == 0
    labelled = np.isfinite(programs.latency).any(1)
    lost = int((none & labelled).sum())
    if lost == int(labelled.sum()):
        raise DataError(
            f"a model of lowered programs learns from their rows, but none of {lost:,} programs "
            "could be lowered; check TVM with tensorese doctor"
        )
    latency = np.where(none[:, None], np.nan, programs.latency)
    note = (f"{lost:,} programs that ran have no rows: not learnt from",) if lost else ()
    return replace(programs, latency=latency), note


def _validator(
    model: StoreModel, programs: ProgramSet, sides: Sides
) -> Callable[[Any, Any], dict[str, float]]:
    judged = of_tasks(programs, sides.validation)
    tasks = range(len(judged.tasks))

    def validate(_: Any, batch: Any) -> dict[str, float]:
        each = [judge_model(model, judged, name, tasks) for name in judged.platforms]
        scored = [one for one in each if one] or [{"top1": 0.0, "top5": 0.0}]
        return {key: float(np.mean([one[key] for one in scored])) for key in ("top1", "top5")}

    return validate


RECIPE = StoreNetworkRecipe
