"""Our ranker, our search and our farm as objects that stock MetaSchedule takes.

    ms.tune_tir(mod, target, work_dir, 64, cost_model=cost_model())
    ms.tune_tir(mod, target, work_dir, 64, strategy=search_strategy(), cost_model="none")

Call `tensorese.tvm_env.import_tvm()` first: it spares stock MetaSchedule the 20 s it takes to
import the intrinsics of every backend.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorese.integrations.programs import Workloads, measurement_of, platform_named, program_of
from tensorese.integrations.strategy import TaskSearch
from tensorese.records.nouns import Program
from tensorese.search.contracts import Ranker
from tensorese.search.proposers.evolution import Evolution, EvolutionConfig
from tensorese.search.rankers.online import OnlineRanker
from tensorese.tvm_env import import_tvm


class _Model:
    """A ranker that scores MetaSchedule's candidates."""

    def __init__(self, ranker: Ranker, platform: str) -> None:
        self.ranker = ranker
        self.platform = platform
        self.workloads = Workloads()

    def learn(self, context: Any, candidates: Sequence[Any], results: Sequence[Any]) -> None:
        platform = platform_named(self.platform, context.target)
        programs = self._programs(context, candidates)
        pairs = zip(programs, results, strict=True)
        self.ranker.update([measurement_of(p, platform, result) for p, result in pairs])

    def judge(self, context: Any, candidates: Sequence[Any]) -> npt.NDArray[np.float64]:
        """Between 0 and 1: stock search draws parents in proportion to these."""
        platform = platform_named(self.platform, context.target).name
        programs = self._programs(context, candidates)
        scores = np.zeros(len(programs))
        by_sketch: dict[str, list[int]] = {}
        for index, program in enumerate(programs):
            by_sketch.setdefault(program.sketch.id, []).append(index)
        for members in by_sketch.values():
            first = programs[members[0]]
            rows = [programs[i].decisions for i in members]
            scores[members] = self.ranker.score(first.workload, platform, first.sketch, rows)
        return np.asarray(1.0 / (1.0 + np.exp(-scores)), dtype=np.float64)

    def _programs(self, context: Any, candidates: Sequence[Any]) -> list[Program]:
        workload = self.workloads.of(context.mod)
        return [program_of(candidate.sch.trace, workload) for candidate in candidates]


def cost_model(ranker: Ranker | None = None, *, platform: str = "") -> Any:
    """A MetaSchedule cost model over any ranker; without one, one that learns from the run.

    `platform` names a model's head where that differs from what the target is called.
    """
    ms, derived_object = _meta_schedule()
    base: Any = ms.cost_model.PyCostModel
    inner = _Model(ranker or OnlineRanker(), platform)

    @derived_object
    class TensoreseModel(base):  # type: ignore[misc]
        def update(self, context: Any, candidates: Any, results: Any) -> None:
            inner.learn(context, candidates, results)

        def predict(self, context: Any, candidates: Any) -> npt.NDArray[np.float64]:
            return inner.judge(context, candidates)

    return TensoreseModel()


def search_strategy(
    ranker: Ranker | None = None,
    *,
    config: EvolutionConfig | None = None,
    platform: str = "",
    seed: int = 0,
) -> Any:
    """A MetaSchedule search strategy: our evolution with its own ranker, for every task.

    The ranker judges, so MetaSchedule's own cost model has nothing to do (`cost_model="none"`).
    On CUDA the space is that of plain `cuda` rules, not the tensor-core family.
    """
    ms, derived_object = _meta_schedule()
    base: Any = ms.search_strategy.PySearchStrategy
    judge = ranker or OnlineRanker()

    def make() -> Any:
        inner = TaskSearch(Evolution(judge, config, seed), platform)
        return TensoreseSearch(inner)

    @derived_object
    class TensoreseSearch(base):  # type: ignore[misc]
        def __init__(self, inner: TaskSearch) -> None:
            super().__init__()
            self.inner = inner

        def _initialize_with_tune_context(self, context: Any) -> None:
            self.inner.set_context(context)

        def pre_tuning(
            self,
            max_trials: int,
            num_trials_per_iter: int,
            design_spaces: Any,
            database: Any = None,
            cost_model: Any = None,
        ) -> None:
            self.inner.start(int(max_trials), int(num_trials_per_iter), database)

        def post_tuning(self) -> None:
            self.inner.state = None

        def generate_measure_candidates(self) -> list[Any] | None:
            return self.inner.next()

        def notify_runner_results(self, measure_candidates: Any, results: Any) -> None:
            self.inner.tell(list(measure_candidates), list(results))

        def clone(self) -> Any:
            return make()

    return make()


def _meta_schedule() -> tuple[Any, Any]:
    tvm = import_tvm()
    utils: Any = importlib.import_module("tvm.ir.utils")
    return tvm.s_tir.meta_schedule, utils.derived_object
