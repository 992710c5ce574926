"""New rows, spread picks, shares of sketches, random rows."""

from __future__ import annotations

import numpy as np
import pytest

from search_support import drawn, few_rows_space, measured, task_state, toy_space
from tensorese.search.contracts import Proposal
from tensorese.search.proposers.pool import (
    Scored,
    distinct,
    embed,
    measured_best,
    new_rows,
    pick,
    row_keys,
)
from tensorese.search.proposers.random_rows import random_proposals
from tensorese.search.proposers.shares import sketch_shares, split
from tensorese.space.decisions import DecisionSpace
from tensorese.space.slots import Choice
from tensorese.space.variation import distance

pytestmark = pytest.mark.null


def test_keys_tell_rows_apart() -> None:
    rows = toy_space().sample(20_000, np.random.default_rng(0))
    assert len(np.unique(row_keys(rows))) == len(np.unique(rows, axis=0))
    kept, where = distinct(np.vstack([rows[:5], rows[:5], rows[3:8]]))
    np.testing.assert_array_equal(kept, rows[:8])
    assert where.tolist() == [0, 1, 2, 3, 4, 12, 13, 14]


def test_seen_rows_are_not_new() -> None:
    state = task_state(few_rows_space())
    rows = state.space.sketches[0].sample(100, np.random.default_rng(0))
    state.promise(
        [Proposal(sketch=0, row=(1, 64), origin=""), Proposal(sketch=0, row=(8, 8), origin="")]
    )
    left = {tuple(row) for row in new_rows(state, 0, rows).tolist()}
    assert left == {(64, 1), (2, 32), (32, 2), (4, 16), (16, 4)}


def test_distances_of_the_embedding_are_those_of_the_space() -> None:
    space = toy_space()
    rows = space.sample(12, np.random.default_rng(0))
    places = embed(space, rows)
    found = np.abs(places[:, None] - places[None]).sum(2)
    np.testing.assert_allclose(found, distance(space, rows, rows))


def test_picks_are_the_best_and_lie_apart() -> None:
    state = task_state()
    rows, _ = distinct(state.space.sketches[0].sample(500, np.random.default_rng(0)))
    scores = np.arange(len(rows), 0, -1, dtype=np.float64)
    scored = [Scored(sketch=0, rows=rows, scores=scores)]
    near = pick(state, scored, 16, "x", apart=0.0)
    assert [p.row for p in near] == [tuple(row) for row in rows[:16].tolist()]
    far = pick(state, scored, 16, "x", apart=5.0)
    picked = np.array([p.row for p in far])
    gaps = distance(state.space.sketches[0], picked, picked) + 99 * np.eye(16)
    assert gaps.min() >= 5.0
    assert far[0] == near[0]
    assert far[-1].score < near[-1].score


def test_what_lies_close_is_taken_when_nothing_else_is_left() -> None:
    state = task_state(few_rows_space())
    rows, _ = distinct(state.space.sketches[0].sample(100, np.random.default_rng(0)))
    scored = [Scored(sketch=0, rows=rows, scores=np.arange(7.0))]
    found = pick(state, scored, 7, "x", apart=100.0)
    assert [p.score for p in found] == [6, 5, 4, 3, 2, 1, 0]


def test_effort_follows_the_best_sketch_and_leaves_none_out() -> None:
    state = task_state()
    assert sketch_shares(state).tolist() == [0.5, 0.5]
    for measurement in measured(state, drawn(state, 30)):
        state.add(measurement)
    shares = sketch_shares(state)
    assert shares.sum() == pytest.approx(1)
    assert shares[0] > shares[1] > 0.15
    assert measured_best(state, 0, 3).shape == (3, 12)


@pytest.mark.parametrize(("n", "shares"), [(7, [0.5, 0.5]), (0, [1.0]), (64, [0.1, 0.6, 0.3])])
def test_whole_numbers_sum_up(n: int, shares: list[float]) -> None:
    counts = split(n, np.array(shares))
    assert sum(counts) == n
    assert all(abs(count - n * share) < 1 for count, share in zip(counts, shares, strict=True))


def test_random_rows_respect_those_beside_them() -> None:
    state = task_state(few_rows_space())
    first = random_proposals(state, 4, np.ones(1), np.random.default_rng(0))
    rest = random_proposals(state, 9, np.ones(1), np.random.default_rng(0), first)
    assert len(first) == 4
    assert len({p.row for p in first + rest}) == 7


def test_choices_alone_are_apart_when_one_differs() -> None:
    """No tile lies between two options: the best of a space of choices are not passed over."""
    slots = tuple(Choice(column=k, options=(0, 1, 2, 3), purpose="") for k in range(3))
    space = DecisionSpace(sketch=few_rows_space().sketch, slots=slots)
    rows = np.array([[a, b, 0] for a in range(4) for b in range(4)])
    scored = [Scored(sketch=0, rows=rows, scores=np.arange(16.0, 0, -1))]
    found = pick(task_state(space), scored, 8, "x", apart=1.5)
    assert [p.row for p in found] == [tuple(row) for row in rows[:8].tolist()]
