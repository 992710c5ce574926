"""What every proposer must keep: one suite over all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from search_support import (
    Referee,
    drawn,
    few_rows_space,
    measured,
    one_row_space,
    seconds,
    task_state,
    toy_space,
    without_rows,
)
from tensorese.search.contracts import Proposal, Proposer, TaskState
from tensorese.search.proposers.annealing import Annealing
from tensorese.search.proposers.evolution import Evolution, EvolutionConfig
from tensorese.search.proposers.random import RandomSearch
from tensorese.search.rankers.online import OnlineRanker

pytestmark = pytest.mark.null

SMALL = EvolutionConfig(population=256)


def _taught(state: TaskState) -> OnlineRanker:
    ranker = OnlineRanker()
    ranker.update(state.measurements)
    return ranker


MAKERS: dict[str, Callable[[TaskState, int], Proposer]] = {
    "random": lambda state, seed: RandomSearch(seed),
    "evolution": lambda state, seed: Evolution(_taught(state), SMALL, seed),
    "annealing": lambda state, seed: Annealing(_taught(state), seed=seed),
}
every = pytest.mark.parametrize("name", list(MAKERS))


def _known(n: int = 24) -> TaskState:
    state = task_state()
    for measurement in measured(state, drawn(state, n)):
        state.add(measurement)
    return state


def _check(state: TaskState, found: list[Proposal]) -> None:
    places = [(p.sketch, p.row) for p in found]
    assert len(set(places)) == len(places)
    assert not state.seen & set(places)
    for p in found:
        assert all(type(value) is int for value in p.row)
        row = np.array([p.row], dtype=np.int64).reshape(1, len(p.row))
        assert state.space.sketches[p.sketch].legal(row).all()


@every
@pytest.mark.parametrize("n", [1, 7, 64])
def test_rows_are_legal_new_and_as_many_as_asked(name: str, n: int) -> None:
    state = _known()
    found = MAKERS[name](state, 0).propose(state, n)
    assert len(found) == n
    _check(state, found)


@every
def test_nothing_asked_is_nothing_proposed(name: str) -> None:
    state = _known()
    assert MAKERS[name](state, 0).propose(state, 0) == []


@every
def test_works_before_anything_was_measured(name: str) -> None:
    state = task_state()
    found = MAKERS[name](state, 0).propose(state, 16)
    assert len(found) == 16
    assert {p.sketch for p in found} == {0, 1}
    _check(state, found)


@every
def test_the_seed_decides(name: str) -> None:
    one, same, other = (MAKERS[name](_known(), seed).propose(_known(), 16) for seed in (1, 1, 2))
    assert one == same
    assert one != other


@every
def test_promised_rows_do_not_come_again(name: str) -> None:
    state = _known()
    proposer = MAKERS[name](state, 0)
    for _ in range(4):
        found = proposer.propose(state, 16)
        _check(state, found)
        state.promise(found)


@every
def test_a_space_of_one_row(name: str) -> None:
    state = task_state(one_row_space())
    proposer = MAKERS[name](state, 0)
    found = proposer.propose(state, 4)
    assert [(p.sketch, p.row) for p in found] == [(0, ())]
    state.promise(found)
    assert proposer.propose(state, 4) == []


@every
def test_a_space_used_up_gives_fewer(name: str) -> None:
    state = task_state(few_rows_space(), one_row_space())
    proposer = MAKERS[name](state, 0)
    first = proposer.propose(state, 5)
    assert len(first) == 5
    state.promise(first)
    rest = proposer.propose(state, 5)
    assert len(rest) == 3
    _check(state, rest)
    state.promise(rest)
    assert proposer.propose(state, 5) == []


@every
def test_a_sketch_without_legal_rows_is_left_out(name: str) -> None:
    state = task_state(without_rows(toy_space()), toy_space(name="b"))
    state.barren.add(0)  # found out by drawing two million rows
    found = MAKERS[name](state, 0).propose(state, 16)
    assert len(found) == 16
    assert {p.sketch for p in found} == {1}


@pytest.mark.parametrize("name", ["evolution", "annealing"])
def test_a_referee_is_asked_about_few_rows(name: str) -> None:
    """Ranked first: what nobody wants to measure need not be judged."""
    referee = Referee()
    state = task_state(replace(toy_space(), limits=(referee,)))
    found = MAKERS[name](state, 0).propose(state, 16)
    assert len(found) == 16
    assert referee.asked < 100
    _check(state, found)


@pytest.mark.parametrize("name", ["evolution", "annealing"])
def test_origins_say_who_picked(name: str) -> None:
    state = _known()
    found = MAKERS[name](state, 0).propose(state, 64)
    assert {p.origin for p in found} == {f"{name}:online", "random"}
    guided = [p for p in found if p.origin != "random"]
    assert 0.85 * 64 <= len(guided) < 64
    assert all(np.isfinite(p.score) for p in guided)


@pytest.mark.parametrize("name", ["evolution", "annealing"])
def test_a_guided_search_finds_faster_rows(name: str) -> None:
    state = _known()
    best = min(m.latency for m in state.measurements)
    proposer = MAKERS[name](state, 0)
    ranker = proposer.ranker  # type: ignore[attr-defined]
    for _ in range(3):
        found = proposer.propose(state, 16)
        new = measured(state, found)
        for measurement in new:
            state.add(measurement)
        ranker.update(new)
    guided = [seconds(p.sketch, p.row) for p in found if p.origin != "random"]
    chance = [seconds(p.sketch, p.row) for p in RandomSearch(9).propose(state, 64)]
    assert state.best_latency < best
    assert np.median(guided) < 0.5 * np.median(chance)
