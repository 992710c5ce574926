"""Our objects inside stock `tune_tir`: few trials of a small matmul, measured by the farm."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorese.identity import workload_of
from tensorese.integrations.farm_pair import farm_pair
from tensorese.integrations.meta_schedule import cost_model, search_strategy
from tensorese.integrations.programs import program_of, target_of
from tensorese.measure.config import FarmConfig
from tensorese.search.proposers.evolution import EvolutionConfig
from tensorese.search.rankers.online import OnlineRanker
from tensorese.space.space import task_space
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm

pytestmark = pytest.mark.tvm

SMALL = EvolutionConfig(population=128)


@pytest.fixture(scope="module")
def target() -> Any:
    return import_tvm().target.Target(Target.parse("host").to_dict())


@pytest.fixture(scope="module")
def pair(target: Any) -> Iterator[tuple[Any, Any]]:
    with farm_pair(target, FarmConfig(verify="none", looks=0)) as made:
        yield made


def _matmul(n: int = 64) -> Any:
    tvm = import_tvm()
    from tvm.s_tir.meta_schedule.testing import te_workload

    return tvm.IRModule({"main": tvm.te.create_prim_func(te_workload.matmul(n, n, n))})


def _tune(
    target: Any, pair: tuple[Any, Any], folder: Path, trials: int = 16, **more: Any
) -> list[Any]:
    """The records of a stock run, fastest first."""
    ms = import_tvm().s_tir.meta_schedule
    # A second stock run in one process stumbles over handlers that have no name.
    logging.getLogger("tvm.s_tir.meta_schedule").handlers.clear()
    builder, runner = pair
    module = _matmul()
    options = {"builder": builder, "runner": runner, "num_trials_per_iter": 8, **more}
    database = ms.tune_tir(
        module, target, str(folder), trials, num_tuning_cores=1, seed=1, **options
    )
    records = database.get_top_k(database.commit_workload(module), 1000)
    assert all(0 < float(record.run_secs[0]) < 1 for record in records)
    return list(records)


def test_stock_search_with_our_model(target: Any, pair: tuple[Any, Any], tmp_path: Path) -> None:
    ranker = OnlineRanker()
    stock = import_tvm().s_tir.meta_schedule.search_strategy.EvolutionarySearch(
        population_size=16, init_measured_ratio=0.2, init_min_unmeasured=8, genetic_num_iters=1
    )
    model = cost_model(ranker)
    records = _tune(target, pair, tmp_path, cost_model=model, strategy=stock)
    assert len(records) >= 8
    assert len(ranker._tasks) == 1


def test_our_search_in_stock_tuning(target: Any, pair: tuple[Any, Any], tmp_path: Path) -> None:
    ranker = OnlineRanker()
    strategy = search_strategy(ranker, config=SMALL)
    records = _tune(target, pair, tmp_path, cost_model="none", strategy=strategy)
    assert len(records) == 16
    traces = {str(record.trace) for record in records}
    assert len(traces) == 16
    (task,) = ranker._tasks.values()
    assert len(task.measurements) == 16

    # The database it wrote is stock's: a second run knows what the first measured.
    again = search_strategy(ranker, config=SMALL)
    more = _tune(target, pair, tmp_path, trials=8, cost_model="none", strategy=again)
    assert len(more) == 24
    assert len({str(record.trace) for record in more}) == 24


def test_one_object_is_enough(target: Any, pair: tuple[Any, Any], tmp_path: Path) -> None:
    """With the ranker of a run as both: stock's default model is not needed."""
    ranker = OnlineRanker()
    strategy = search_strategy(ranker, config=SMALL)
    records = _tune(
        target, pair, tmp_path, trials=8, cost_model=cost_model(ranker), strategy=strategy
    )
    assert len(records) == 8


def test_the_model_judges_programs_not_schedules(target: Any) -> None:
    """The same decisions get the same score, whatever their postprocessing or batch."""
    tvm = import_tvm()
    ms = tvm.s_tir.meta_schedule
    context = ms.TuneContext(
        mod=_matmul(), target=target, space_generator="post-order-apply", num_threads=1
    )
    spaces = context.generate_design_space()
    candidates = [ms.MeasureCandidate(schedule, []) for schedule in [*spaces, spaces[0]]]
    scores = cost_model().predict(context, candidates)
    assert scores.shape == (len(spaces) + 1,)
    assert scores[0] == scores[-1]
    assert len(set(scores.tolist())) == len(spaces)
    assert ((scores > 0) & (scores < 1)).all()
    np.testing.assert_array_equal(scores[:1], cost_model().predict(context, candidates[:1]))


def test_names_are_those_of_the_house(target: Any) -> None:
    assert target_of(target) == Target.parse("host")
    module = _matmul()
    space = task_space(module, target_of(target))
    row = space.sketches[0].sample(1, np.random.default_rng(0))[0]
    schedule = space.replay(0, row).schedule
    workload = workload_of(module)
    assert program_of(schedule.trace, workload).id == space.program(0, row, workload).id
