"""What every proposer must keep: one suite over all that are registered, new ones included."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import replace

import numpy as np
import pytest
from writer_support import micro_writer

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
from tensorese.search import proposers
from tensorese.search.contracts import Proposal, Proposer, TaskState
from tensorese.search.proposers.by_name import PROPOSERS, proposer_named
from tensorese.search.proposers.evolution import SearchError
from tensorese.search.proposers.random import RandomSearch
from tensorese.search.proposers.tlm import TLMProposer
from tensorese.search.rankers.online import OnlineRanker

pytestmark = pytest.mark.null


def _taught(state: TaskState) -> OnlineRanker:
    ranker = OnlineRanker()
    ranker.update(state.measurements)
    return ranker


every = pytest.mark.parametrize("name", list(PROPOSERS))


def make(name: str, state: TaskState, seed: int) -> Proposer:
    proposer = proposer_named(name, _taught(state), seed)
    for writes in (proposer, getattr(proposer, "writer", None)):
        if isinstance(writes, TLMProposer):
            writes.model = micro_writer()
    return proposer


def propose(proposer: Proposer, state: TaskState, n: int) -> list[Proposal]:
    (rows,) = proposer.propose([state], n)
    return rows


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
    found = propose(make(name, state, 0), state, n)
    assert len(found) == n
    _check(state, found)


@every
def test_nothing_asked_is_nothing_proposed(name: str) -> None:
    state = _known()
    assert propose(make(name, state, 0), state, 0) == []


@every
def test_works_before_anything_was_measured(name: str) -> None:
    state = task_state()
    found = propose(make(name, state, 0), state, 16)
    assert len(found) == 16
    assert {p.sketch for p in found} == {0, 1}
    _check(state, found)


@every
def test_the_seed_decides(name: str) -> None:
    one, same, other = (propose(make(name, _known(), seed), _known(), 16) for seed in (1, 1, 2))
    assert one == same
    assert one != other


@every
def test_promised_rows_do_not_come_again(name: str) -> None:
    state = _known()
    proposer = make(name, state, 0)
    for _ in range(4):
        found = propose(proposer, state, 16)
        _check(state, found)
        state.promise(found)


@every
def test_a_space_of_one_row(name: str) -> None:
    state = task_state(one_row_space())
    proposer = make(name, state, 0)
    found = propose(proposer, state, 4)
    assert [(p.sketch, p.row) for p in found] == [(0, ())]
    state.promise(found)
    assert propose(proposer, state, 4) == []


@every
def test_a_space_used_up_gives_fewer(name: str) -> None:
    state = task_state(few_rows_space(), one_row_space())
    proposer = make(name, state, 0)
    first = propose(proposer, state, 5)
    assert len(first) == 5
    state.promise(first)
    rest = propose(proposer, state, 5)
    assert len(rest) == 3
    _check(state, rest)
    state.promise(rest)
    assert propose(proposer, state, 5) == []


@every
def test_a_sketch_without_legal_rows_is_left_out(name: str) -> None:
    state = task_state(without_rows(toy_space()), toy_space(name="b"))
    state.barren.add(0)  # found out by drawing two million rows
    found = propose(make(name, state, 0), state, 16)
    assert len(found) == 16
    assert {p.sketch for p in found} == {1}


@pytest.mark.parametrize("name", ["evolution", "annealing"])
def test_a_referee_is_asked_about_few_rows(name: str) -> None:
    """Ranked first: what nobody wants to measure need not be judged."""
    referee = Referee()
    state = task_state(replace(toy_space(), limits=(referee,)))
    found = propose(make(name, state, 0), state, 16)
    assert len(found) == 16
    assert referee.asked < 100
    _check(state, found)


@pytest.mark.parametrize("name", ["evolution", "annealing"])
def test_origins_say_who_picked(name: str) -> None:
    state = _known()
    found = propose(make(name, state, 0), state, 64)
    assert {p.origin for p in found} == {f"{name}:online", "random"}
    guided = [p for p in found if p.origin != "random"]
    assert 0.85 * 64 <= len(guided) < 64
    assert all(np.isfinite(p.score) for p in guided)


@pytest.mark.parametrize("name", ["evolution", "annealing"])
def test_a_guided_search_finds_faster_rows(name: str) -> None:
    state = _known()
    best = min(m.latency for m in state.measurements)
    proposer = make(name, state, 0)
    for _ in range(3):
        found = propose(proposer, state, 16)
        new = measured(state, found)
        for measurement in new:
            state.add(measurement)
        proposer.update(new)
    guided = [seconds(p.sketch, p.row) for p in found if p.origin != "random"]
    chance = [seconds(p.sketch, p.row) for p in propose(RandomSearch(9), state, 64)]
    assert state.best_latency < best
    assert np.median(guided) < 0.5 * np.median(chance)


@every
def test_several_tasks_in_one_call_get_what_each_gets_alone(name: str) -> None:
    def tasks() -> list[TaskState]:
        return [_known(), task_state(extents=(32, 32, 32)), task_state(one_row_space())]

    together = make(name, _known(), 0).propose(tasks(), 8)
    alone = [propose(make(name, _known(), 0), state, 8) for state in tasks()]
    assert together == alone
    assert [len(rows) for rows in together] == [8, 8, 1]
    assert make(name, _known(), 0).propose([], 8) == []


@every
def test_another_batch_draws_other_rows_and_the_same_one_the_same(name: str) -> None:
    state, proposer = _known(), make(name, _known(), 0)
    first, again = propose(proposer, state, 16), propose(proposer, state, 16)
    state.batch = 1
    assert first == again != propose(proposer, state, 16)


@every
def test_what_it_learns_changes_nothing_that_was_promised(name: str) -> None:
    state = task_state()
    proposer = make(name, state, 0)
    rows = propose(proposer, state, 16)
    state.promise(rows)
    new = measured(state, rows)
    for measurement in new:
        state.add(measurement)
    proposer.update(new)
    _check(state, propose(proposer, state, 16))


@every
def test_it_says_its_name_and_signs_with_it(name: str) -> None:
    proposer = make(name, _known(), 0)
    assert proposer.name == name
    assert any(p.origin.split(":")[0] == name for p in propose(proposer, _known(), 64))


def test_every_proposer_of_the_package_is_registered() -> None:
    for module in pkgutil.iter_modules(proposers.__path__, f"{proposers.__name__}."):
        importlib.import_module(module.name)
    ours = {c for c in Proposer.__subclasses__() if c.__module__.startswith("tensorese.")}
    assert ours == {type(make(name, _known(), 0)) for name in PROPOSERS}


def test_an_unknown_name_is_one_line_with_the_near_one() -> None:
    with pytest.raises(SearchError, match=r"one of evolution, .*'anealing'.*did you mean"):
        proposer_named("anealing", OnlineRanker(), 0)
