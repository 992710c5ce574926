"""`train xgboost` and `train lightgbm`: trees on lowered programs, one forest a platform."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from tensorese.evaluation.judge import judge_scores
from tensorese.features.base import FeatureSet, feature_set
from tensorese.features.programs import DataError, ProgramSet
from tensorese.models.base import model_class
from tensorese.models.store_trees import Objective, StoreTrees
from tensorese.models.trees import Forest
from tensorese.training.labels import only
from tensorese.training.recipes.base import DataSelection, Recipe, Trained, TrainingJob
from tensorese.training.store_trees import SETTINGS, grow


@dataclass(frozen=True, kw_only=True)
class StoreTreesRecipe(Recipe):
    kind: str = "xgboost"
    objective: Objective = "pack-sum"
    """A sum over stores, as MetaSchedule has it, or ranked task by task."""
    rounds: int = 200
    choose: bool = True
    """Of three settings the best on validation tasks; false takes the first."""

    @classmethod
    def named(cls, kind: str, preset: str, selection: DataSelection) -> Self:
        return cls(selection=selection, kind=kind)

    def needs(self) -> tuple[FeatureSet, ...]:
        return (feature_set("lowered"),)

    def train(self, job: TrainingJob) -> Trained:
        if importlib.util.find_spec(self.kind) is None:
            raise DataError(
                f"train {self.kind} grows trees by a library that is not installed; "
                "pip install 'tensorese[baselines]', or train tenset-mlp"
            )
        forests, notes = {}, []
        for platform in job.programs.platforms:
            mine = only(job.programs, platform)
            setting, note = self._setting(mine, job)
            forests[platform] = self._grown(mine, job.sides.seen, setting)
            notes.append(f"{platform}: {note}")
        return Trained(model=self._model(forests), notes=tuple(notes))

    def _model(self, forests: Mapping[str, Forest]) -> StoreTrees:
        cls = model_class(self.kind)
        assert issubclass(cls, StoreTrees)
        return cls(self.objective, forests)

    def _grown(
        self, programs: ProgramSet, tasks: Sequence[int], setting: Mapping[str, Any]
    ) -> Forest:
        return grow(self.kind, self.objective, programs, tasks, setting, self.rounds, self.seed)

    def _setting(self, programs: ProgramSet, job: TrainingJob) -> tuple[Mapping[str, Any], str]:
        """Of one platform, and what it was on validation tasks."""
        settings = SETTINGS[self.kind]
        if not self.choose or not job.sides.validation:
            return settings[0], f"{dict(settings[0])}, not chosen"
        marks = [self._mark(programs, job, setting) for setting in settings]
        best = settings[int(np.argmax(marks))]
        return best, f"{dict(best)}, {max(marks):.3f} on validation tasks"

    def _mark(self, programs: ProgramSet, job: TrainingJob, setting: Mapping[str, Any]) -> float:
        """The means of top-1, top-5 and the first five picks."""
        (platform,) = programs.platforms
        model = self._model({platform: self._grown(programs, job.sides.train, setting)})
        scores = model.rank(model.read_all(programs), platform).astype(np.float64)
        results = judge_scores(programs, platform, scores, job.sides.validation)
        each = [(r.ratio(1), r.ratio(5), r.steady) for r in results]
        return float(np.mean(each)) if each else 0.0


RECIPE = StoreTreesRecipe
