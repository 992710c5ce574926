"""A sketch that the integers do not decide: drawn by replay, said once, proposed like any other."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from tensorese.identity import workload_of
from tensorese.search.contracts import TaskState
from tensorese.search.proposers.evolution import Evolution, EvolutionConfig
from tensorese.search.proposers.random import RandomSearch
from tensorese.search.rankers.online import OnlineRanker
from tensorese.space.materialise import materialise
from tensorese.space.space import task_space
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm

pytestmark = pytest.mark.tvm


def test_an_uncovered_sketch_is_drawn_by_replay(caplog: pytest.LogCaptureFixture) -> None:
    tvm = import_tvm()
    from tvm.s_tir.meta_schedule.testing import te_workload

    module = tvm.IRModule({"main": tvm.te.create_prim_func(te_workload.matmul(32, 32, 32))})
    target = Target.parse("host")
    space = task_space(module, target)
    first = replace(space.sketches[0], slots=(), locators={}, limits=(), reason="for the test")
    space = replace(space, sketches=(first, *space.sketches[1:]))
    state = TaskState(workload_of(module), space, target.platform())
    config = EvolutionConfig(population=64)
    with caplog.at_level(logging.WARNING):
        for proposer in (RandomSearch(0), Evolution(OnlineRanker(), config, 1)):
            (found,) = proposer.propose([state], 9)
            assert len(found) == 9
            assert 0 in {p.sketch for p in found}
            assert not state.seen & {(p.sketch, p.row) for p in found}
            state.promise(found)
            rows = [(p.sketch, p.row) for p in found]
            assert not any(m.error for m in materialise(space, rows, state.workload))
    assert [r.getMessage() for r in caplog.records if "by replay" in r.getMessage()] == [
        "sketch 0 is drawn by replay: for the test"
    ]
