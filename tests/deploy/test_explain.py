"""Where the time between a network and its tasks goes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tensorese.deploy.apply import Applied
from tensorese.deploy.arena import summary
from tensorese.deploy.explain import explain, kernel_rows, sum_of_tasks
from tensorese.deploy.folder import TunedRun
from tensorese.records.nouns import Sketch
from tensorese.records.run_entries import BestProgram

pytestmark = pytest.mark.null

SKETCH = Sketch(dialect="metaschedule", body="[[],[]]", slots=())


def run_with(**latencies: float) -> TunedRun:
    best = {
        found: BestProgram(
            sketch=SKETCH, decisions=(), tail="", latency=secs, name=found, weight=1, flops=1.0
        )
        for found, secs in latencies.items()
    }
    tasks = tuple({"workload": found, "name": found, "weight": 2} for found in latencies)
    return TunedRun(
        path=Path(),
        model="zoo:x",
        network="x",
        target='{"kind":"llvm"}',
        platform="here",
        tasks=tasks,
        best=best,
    )


def applied() -> Applied:
    return Applied(module=None, tuned={"conv_tuned": "c"}, untuned={"softmax": "s"}, workloads={})


def test_weights_count() -> None:
    assert sum_of_tasks(run_with(c=1e-3, d=2e-3)) == pytest.approx(6e-3)


def test_a_small_gap_needs_no_explanation() -> None:
    run = run_with(c=1e-3)
    rows = kernel_rows([{"kernel": "conv_tuned", "secs": 2.05e-3, "calls": 2}], applied(), run)
    found = explain(2.1e-3, rows, run)
    assert found["gap"] == pytest.approx(0.05) and found["causes"] == []


def test_a_large_one_names_untuned_kernels_slower_ones_and_what_lies_between() -> None:
    run = run_with(c=1e-3)
    profile = [
        {"kernel": "conv_tuned", "secs": 2.5e-3, "calls": 2},
        {"kernel": "softmax", "secs": 4e-3, "calls": 1},
        {"kernel": "vm.builtin.alloc_storage", "secs": 1.0, "calls": 9},
    ]
    rows = kernel_rows(profile, applied(), run)
    assert [row["promised"] for row in rows] == [pytest.approx(2e-3), None]
    found = explain(8e-3, rows, run)
    assert found["gap"] == pytest.approx(3.0)
    assert found["causes"] == [
        "softmax has no tuned program: 4 ms",
        "between the kernels: 1.5 ms",
        "conv_tuned takes 2.5 ms in 2 calls, measured at 2 ms",
    ]


def test_a_run_without_programs_has_no_gap_but_causes() -> None:
    run = run_with()
    rows = kernel_rows([{"kernel": "softmax", "secs": 4e-3, "calls": 1}], applied(), run)
    found = explain(4e-3, rows, run)
    assert found["gap"] is None and found["causes"] == ["softmax has no tuned program: 4 ms"]


@pytest.mark.parametrize("kernel", ["winograd_input", "joined_channels3"])
def test_winograds_transforms_and_joins_are_fixed_not_untuned(kernel: str) -> None:
    run = run_with()
    rows = kernel_rows([{"kernel": kernel, "secs": 4e-3, "calls": 1}], applied(), run)
    assert explain(4e-3, rows, run)["causes"] == [f"{kernel} has a fixed program: 4 ms"]


def test_rounds_are_summed_up_by_their_medians() -> None:
    found = summary([[1.0, 2.0, 30.0], [4.0, 4.0], [3.0]])
    assert found["latency"] == 3.0 and found["best"] == 1.0 and found["runs"] == 6
    assert found["rounds"] == [2.0, 4.0, 3.0] and found["spread"] == pytest.approx(2 / 3)


def test_a_program_that_was_not_timed_promises_nothing() -> None:
    run = run_with(c=1e-3, d=2e-3)
    chosen = replace(run.best["c"], latency=None, origin="evolution:x")
    run = replace(run, best={**run.best, "c": chosen})
    assert sum_of_tasks(run) == pytest.approx(4e-3)
    (row,) = kernel_rows([{"kernel": "conv_tuned", "secs": 0.1, "calls": 1}], applied(), run)
    assert (row["promised"], row["origin"]) == (None, "evolution:x")
    (cause, *_) = explain(0.1, [row], run)["causes"]
    assert cause == "conv_tuned has a program that was not timed: 100 ms"


def test_on_a_gpu_what_its_own_clock_leaves_is_asking_and_waiting() -> None:
    run = run_with(c=1e-3)
    rows = kernel_rows([{"kernel": "conv_tuned", "secs": 2e-3, "calls": 2}], applied(), run)
    found = explain(3e-3, rows, run, 2.1e-3)
    assert found["between_kernels"] == pytest.approx(1e-4)
    assert found["asking_and_waiting"] == pytest.approx(9e-4)
    assert found["causes"][0] == "asking the GPU and waiting: 0.9 ms"


def test_kernels_that_nobody_could_watch_are_not_said_to_take_nothing() -> None:
    found = explain(3e-3, [], run_with(c=1e-3), 2.1e-3)
    assert found["kernels_in_place"] is None and found["between_kernels"] is None
    assert found["device"] == pytest.approx(2.1e-3)
