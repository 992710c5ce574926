"""Both ways to compute a convolution or an attention, read off the network, with what they differ
in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

from tensorese.records.run_entries import EitherWay
from tensorese.records.task import Task
from tensorese.workloads import attention as module_attention
from tensorese.workloads import tasks_of_all
from tensorese.workloads.choice import Choice
from tensorese.workloads.either_way import choice_of, doubtful, said, tasks_either_way, way_of
from workload_support import host, network_of

pytestmark = pytest.mark.tvm

LARGE, SMALL = (1, 56, 56, 64, 64), (1, 7, 7, 512, 512)


class Block(nn.Module):
    """Two convolutions of one kind, with and without a shortcut, and one without a choice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(64, 64, 3, padding=1)
        self.second = nn.Conv2d(64, 64, 3, padding=1)
        self.last = nn.Conv2d(64, 16, 3, stride=2)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.second(torch.relu(self.first(x))) + x)
        return self.last(y) + y.mean((2, 3), keepdim=True)[:, :16]


class Extract:
    """Every task of a network, as `tune` has them."""

    def __init__(self, network: Any) -> None:
        self.network = network

    def __call__(self, choice: Choice) -> list[Task]:
        return tasks_of_all([self.network], host(), winograd=choice, attention=choice, fixed=True)


@pytest.fixture(scope="module")
def extract() -> Any:
    torch.manual_seed(0)
    network = network_of(Block(), torch.randn(1, 64, 56, 56))
    return Extract(network)


def either(
    extract: Any, choice: Choice, *, known: Any = None, trials: float = 100, secs: float = 1e-3
) -> tuple[list[Task], list[EitherWay], list[int]]:
    timed: list[int] = []

    def latencies(kernels: Sequence[Any]) -> list[float]:
        timed.append(len(kernels))
        assert not any(workload.module for workload, _ in kernels)
        assert all("T.parallel" in module.script() for _, module in kernels)
        return [secs] * len(kernels)

    now = extract(choice)
    tasks, ways = tasks_either_way(
        now, choice, extract, known=known, trials=trials, timed=latencies
    )
    return tasks, ways, timed


def weights(tasks: Sequence[Task]) -> list[tuple[str, int]]:
    products = ("conv2d", "batch_matmul")
    return sorted((t.operator, t.weight) for t in tasks if t.operator in products)


def test_the_other_way_is_there_and_weighs_nothing(extract: Any) -> None:
    choice = Choice()
    tasks, (one,), timed = either(extract, choice)
    assert choice.asked == {LARGE: 2} and one.key == LARGE and not one.decided
    assert [way.m for way in one.ways] == [4, 0]
    assert weights(tasks) == [("batch_matmul", 2), ("conv2d", 0), ("conv2d", 0), ("conv2d", 1)]
    assert timed == [3], "one transform of inputs, two of outputs"
    assert [way.fixed for way in one.ways] == [pytest.approx(4e-3), 0.0]
    assert [sorted(way.calls.values()) for way in one.ways] == [[2], [1, 1]]


def test_what_is_chosen_has_the_tasks_that_were_said(extract: Any) -> None:
    """Tasks of the network with the decision the other way are those that then have a weight."""
    tasks, (one,), _ = either(extract, Choice())
    swapped = EitherWay(key=one.key, ways=(one.ways[1], one.ways[0]), decided=True)
    after = {t.workload.id: t.weight for t in tasks}
    for sign, way in zip((-1, 1), one.ways, strict=True):
        for id_, calls in way.calls.items():
            after[id_] += sign * calls
    resumed, ways, timed = either(extract, choice_of([swapped]), known=[swapped])
    assert {t.workload.id: t.weight for t in resumed} == after
    texts = [{t.workload.id: t.workload.module for t in some} for some in (tasks, resumed)]
    assert texts[0] == texts[1], "names of blocks too, or programs do not replay"
    assert ways == [swapped] and timed == []
    direct = tasks_of_all([extract.network], host(), winograd=choice_of([swapped]))
    assert {t.workload.id: t.weight for t in direct} == {i: n for i, n in after.items() if n}


@pytest.mark.parametrize("limits", [{"trials": 10.0}, {"secs": math.nan}, {"known": ()}])
def test_otherwise_the_estimate_stays(extract: Any, limits: dict[str, Any]) -> None:
    """Too few trials for it, a transform that does not run, a run that has nothing to decide."""
    choice = Choice()
    tasks, ways, _ = either(extract, choice, **limits)
    assert ways == [] and weights(tasks) == [("batch_matmul", 2), ("conv2d", 1)]
    assert said(choice, ways) == (
        "2 of 2 convolutions by Winograd's algorithm, 0 decided by measuring, "
        "2 doubtful ones by an estimate"
    )


def test_doubtful_is_where_the_estimates_are_close() -> None:
    choice = Choice()
    choice.asked.update({LARGE: 4, SMALL: 3, (1, 56, 56, 512, 512): 1})
    assert doubtful(choice) == [(SMALL, 2), (LARGE, 0)], "most in doubt first"
    first, second = way_of(choice, SMALL), way_of(choice, LARGE)
    assert (first, second) == (0, 4)


def test_what_is_said_counts_convolutions() -> None:
    choice = Choice()
    choice.asked.update({LARGE: 4, SMALL: 3})
    entry = {"m": 2, "calls": {}, "fixed": 0.0, "secs": 1.0}
    ways = [{**entry}, {**entry, "m": 0}]
    one = EitherWay.from_dict({"key": list(SMALL), "ways": ways, "decided": True})
    assert said(choice, [one]) == (
        "7 of 7 convolutions by Winograd's algorithm, 3 decided by measuring, "
        "4 doubtful ones by an estimate"
    )
    assert said(Choice(), []) == ""


# -- attention --------------------------------------------------------------------------------

HEADS = (2, 40, 40, 16, 16, 0)


class Attends(nn.Module):
    """Two attentions of one kind between products."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(torch.softmax(x @ x.transpose(-1, -2) / 4.0, -1) @ x)
        return x


@pytest.mark.parametrize("estimate", [0, 1])
def test_attention_either_way_has_the_tasks_that_were_said(
    monkeypatch: pytest.MonkeyPatch, estimate: int
) -> None:
    monkeypatch.setattr(module_attention, "fused", lambda key: estimate)
    extract = Extract(network_of(Attends(), torch.randn(2, 40, 16)))
    choice = Choice()
    tasks, (one,), timed = either(extract, choice)
    assert choice.asked == {HEADS: 2} and one.key == HEADS and timed == [1]
    assert [way.m for way in one.ways] == [estimate, 1 - estimate]
    ways = {way.m: way for way in one.ways}
    assert (ways[0].fixed, ways[1].fixed) == (0.0, pytest.approx(2e-3))
    by_id = {task.workload.id: task for task in tasks}
    operators = [by_id[id_].operator for id_ in ways[0].calls]
    assert operators.count("softmax") == 1 and operators.count("batch_matmul") == 2
    assert {by_id[id_].weight for id_ in ways[0].calls} == {0 if estimate else 2}
    swapped = EitherWay(key=one.key, ways=(one.ways[1], one.ways[0]), decided=True)
    resumed, _, _ = either(extract, choice_of([swapped]), known=[swapped])
    modules = [{t.workload.id: t.workload.module for t in some} for some in (tasks, resumed)]
    assert modules[0] == modules[1], "names of blocks too, or programs do not replay"


def test_a_network_of_nothing_else_is_decided_whatever_it_costs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module_attention, "fused", lambda key: 1)

    class Alone(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.softmax(x @ x.transpose(-1, -2) / 4.0, -1) @ x

    extract = Extract(network_of(Alone(), torch.randn(2, 40, 16)))
    tasks, ways, timed = either(extract, Choice(), trials=1)
    assert len(ways) == 1 and timed == [1] and tasks and not any(t.weight for t in tasks)


def test_what_is_said_counts_attentions_beside_convolutions() -> None:
    choice = Choice({LARGE: 0})
    choice.asked.update({LARGE: 1, (6, 1500, 1500, 64, 64, 0): 4})
    assert said(choice, []) == (
        "0 of 1 convolutions by Winograd's algorithm, 0 decided by measuring, "
        "1 doubtful ones by an estimate; 4 of 4 attentions in one kernel, 0 decided by measuring, "
        "4 doubtful ones by an estimate"
    )
