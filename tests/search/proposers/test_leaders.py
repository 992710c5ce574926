"""Rows scored by the million: each once, the best kept, memory bounded."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from search_support import task_state
from tensorese.records.nouns import Measurement, Sketch, Workload
from tensorese.search.proposers import leaders
from tensorese.search.proposers.evolution import Evolution, EvolutionConfig
from tensorese.search.proposers.leaders import KeySet, Leaders
from tensorese.search.proposers.pool import distinct, row_keys

pytestmark = pytest.mark.null


class Sum:
    """Likes large numbers and remembers how many rows it was shown, and at once."""

    name, needs = "sum", "decisions"

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def score(
        self, workload: Workload, platform: str, sketch: Sketch, decisions: npt.ArrayLike
    ) -> npt.NDArray[np.float32]:
        rows = np.asarray(decisions)
        self.sizes.append(len(rows))
        return rows.sum(1).astype(np.float32)

    def update(self, measurements: list[Measurement]) -> None:
        pass


def test_a_set_of_keys_is_a_set() -> None:
    rng = np.random.default_rng(0)
    known: set[int] = set()
    keys = KeySet()
    for size in (3, 50, 1, 0, 700, 20, 20, 3000):
        new = np.unique(rng.integers(5000, size=size, dtype=np.uint64))
        lacking = keys.lacks(new)
        assert lacking.tolist() == [int(key) not in known for key in new]
        keys.add(new[lacking])
        known.update(new.tolist())
        assert len(keys) == len(known)


def test_the_best_are_kept_and_nothing_is_scored_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaders, "CHUNK", 64)
    state, ranker = task_state(), Sum()
    rows = state.space.sketches[0].sample(3000, np.random.default_rng(0))
    kept = Leaders(state, ranker, 0, 16)
    for start in range(0, 3000, 50):
        kept.see(rows[start : start + 50])
    every, _ = distinct(rows)
    assert kept.n_scored == sum(ranker.sizes) == len(every)
    assert len(kept.rows) <= 16 + 64
    order = np.argsort(-every.sum(1), kind="stable")[:16]
    np.testing.assert_array_equal(kept.best(16), every[order])
    assert not len(kept.unknown(rows))


def test_evolution_holds_few_rows_however_many_it_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large population is bred in pieces, each from the best so far."""
    monkeypatch.setattr(leaders, "CHUNK", 256)
    monkeypatch.setattr("tensorese.search.proposers.evolution.CHUNK", 256)
    ranker = Sum()
    config = EvolutionConfig(population=6000, epsilon=0)
    found = Evolution(ranker, config).evolve(task_state(), 8)
    assert 5000 <= sum(ranker.sizes) <= 6100
    assert max(ranker.sizes) <= 256 + 32
    assert len({(p.sketch, p.row) for p in found}) == 8
    small = Evolution(Sum(), EvolutionConfig(population=256, epsilon=0)).evolve(task_state(), 8)
    assert np.mean([p.score for p in found]) >= np.mean([p.score for p in small])


def test_kept_rows_that_the_task_has_seen_are_not_offered() -> None:
    state = task_state()
    rows = state.space.sketches[0].sample(20, np.random.default_rng(0))
    kept = Leaders(state, Sum(), 0, 16)
    kept.see(rows)
    state.seen.add((0, tuple(rows[3].tolist())))
    assert int(row_keys(rows[3:4])[0]) not in row_keys(kept.scored().rows).tolist()
    assert len(kept.scored().rows) == len(distinct(rows)[0]) - 1
