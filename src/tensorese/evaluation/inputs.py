"""What models read of a program set: one reading for all models of the same features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorese.evaluation.lowered_programs import NOBODY, Listener, ready_for
from tensorese.features.base import FeatureSet
from tensorese.features.programs import ProgramSet
from tensorese.models.base import Model
from tensorese.records.store import Store


def inputs_of(model: Model, programs: ProgramSet) -> Any:
    """The one place where evaluation reads features."""
    return model.read_all(programs)


class Inputs:
    """Of one program set, from these stores; lowered when a model first asks for that."""

    def __init__(
        self,
        programs: ProgramSet,
        stores: Sequence[Store] = (),
        listener: Listener = NOBODY,
        *,
        failed: bool = False,
    ) -> None:
        self.programs, self.stores = programs, stores
        self.listener, self.failed = listener, failed
        self._read: dict[FeatureSet, Any] = {}

    def of(self, model: Model) -> Any:
        if model.needs not in self._read:
            programs = ready_for(
                [model.needs], self.programs, self.stores, self.listener, failed=self.failed
            )
            self._read[model.needs] = inputs_of(model, programs)
        return self._read[model.needs]

    def scores(self, model: Model, platform: str) -> npt.NDArray[np.float64]:
        """`[n]` by the model's head for `platform`."""
        return model.rank(self.of(model), platform).astype(np.float64)


def of_tasks(programs: ProgramSet, tasks: Sequence[int]) -> ProgramSet:
    """The programs of these tasks, in their order: features of no others are computed."""
    index = np.flatnonzero(np.isin(programs.task, np.asarray(tasks, dtype=np.int64)))
    place = np.full(len(programs), -1)
    place[index] = np.arange(len(index))
    names = [programs.tasks[k] for k in sorted(tasks)]
    number = np.full(len(programs.tasks), -1)
    number[sorted(tasks)] = np.arange(len(names))
    pairs = [k for k, pair in enumerate(programs.pairs) if pair.workload in set(names)]
    renamed = np.full(len(programs.pairs), -1)
    renamed[pairs] = np.arange(len(pairs))
    return replace(
        programs,
        workloads={name: programs.workloads[name] for name in names},
        pairs=tuple(programs.pairs[k] for k in pairs),
        pair=renamed[programs.pair[index]],
        decisions=tuple(programs.decisions[k] for k in pairs),
        members=tuple(place[programs.members[k]] for k in pairs),
        task=number[programs.task[index]],
        tasks=tuple(names),
        latency=programs.latency[index],
        failed=programs.failed[index],
        ids=tuple(programs.ids[k] for k in index),
        lowered=None if programs.lowered is None else programs.lowered.take(index),
    )
