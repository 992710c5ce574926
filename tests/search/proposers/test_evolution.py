"""What evolution does beyond the contract."""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt
import pytest

from search_support import drawn, few_rows_space, measured, task_state, toy_space
from tensorese.records.nouns import Measurement, Sketch, Workload
from tensorese.search.contracts import TaskState
from tensorese.search.proposers.evolution import Evolution, EvolutionConfig, SearchError
from tensorese.search.rankers.online import OnlineRanker
from tensorese.space.variation import distance

pytestmark = pytest.mark.null


class Lanes:
    """Likes one innermost factor and counts what it is asked."""

    name, needs = "lanes", "decisions"

    def __init__(self) -> None:
        self.rows: list[tuple[int, ...]] = []

    def score(
        self, workload: Workload, platform: str, sketch: Sketch, decisions: npt.ArrayLike
    ) -> npt.NDArray[np.float32]:
        rows = np.asarray(decisions)
        self.rows += [(sketch.id, *row) for row in rows.tolist()]
        return (-np.abs(rows[:, 7] - 16) - np.abs(rows[:, 3] - 32)).astype(np.float32)

    def update(self, measurements: list[Measurement]) -> None:
        pass


def _known(n: int = 16) -> TaskState:
    state = task_state()
    for measurement in measured(state, drawn(state, n)):
        state.add(measurement)
    return state


def test_as_many_rows_are_scored_as_asked_and_none_twice() -> None:
    ranker = Lanes()
    Evolution(ranker, EvolutionConfig(population=1000)).evolve(_known(), 8)
    assert 1000 <= len(ranker.rows) <= 1000 + 2 * 64
    assert len(set(ranker.rows)) == len(ranker.rows)


def test_it_finds_what_the_ranker_likes() -> None:
    config = EvolutionConfig(population=2048, epsilon=0)
    found = Evolution(Lanes(), config).evolve(task_state(), 8)
    assert np.mean([p.row[7] == 16 and p.row[3] == 32 for p in found]) >= 0.75
    config = EvolutionConfig(population=2048, generations=1, epsilon=0)
    one = Evolution(Lanes(), config).evolve(task_state(), 8)
    assert np.nanmean([p.score for p in found]) > np.nanmean([p.score for p in one])


def test_picks_are_not_all_alike() -> None:
    state = _known()
    config = EvolutionConfig(population=1024, epsilon=0, apart=3.0)
    found = Evolution(Lanes(), config).evolve(state, 24)
    for sketch in (0, 1):
        rows = np.array([p.row for p in found if p.sketch == sketch]).reshape(-1, 12)
        gaps = distance(state.space.sketches[sketch], rows, rows) + 99 * np.eye(len(rows))
        assert len(rows) < 2 or gaps.min() >= 3.0


def test_seeds_join_the_first_generation() -> None:
    state = task_state()
    seed = np.array([[1, 2, 1, 32, 3, 1, 1, 16, 32, 1, 0, -1]])
    ranker = Lanes()
    Evolution(ranker, EvolutionConfig(population=64)).evolve(state, 4, [(0, seed)])
    assert (state.space.sketches[0].sketch.id, *seed[0].tolist()) in ranker.rows


def test_64_proposals_of_2048_in_well_under_half_a_second() -> None:
    state = _known(32)
    ranker = OnlineRanker()
    ranker.update(state.measurements)
    Evolution(ranker).evolve(state, 64)
    started = time.process_time()
    assert len(Evolution(ranker).evolve(state, 64)) == 64
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize("wrong", [{"population": 0}, {"epsilon": 1.5}, {"first": -0.1}])
def test_settings_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(SearchError, match=next(iter(wrong))):
        EvolutionConfig(**wrong)  # type: ignore[arg-type]


def test_what_a_small_sketch_cannot_give_the_others_do() -> None:
    """7 rows beside thousands: as many are scored as asked for all the same."""
    ranker = Counting()
    state = task_state(toy_space(), few_rows_space())
    Evolution(ranker, EvolutionConfig(population=1500)).evolve(state, 8)
    assert ranker.scored >= 1500
    small = Counting()
    Evolution(small, EvolutionConfig(population=1500)).evolve(task_state(few_rows_space()), 8)
    assert small.scored == 7


class Counting:
    name, needs = "counting", "decisions"

    def __init__(self) -> None:
        self.scored = 0

    def score(
        self, workload: Workload, platform: str, sketch: Sketch, decisions: npt.ArrayLike
    ) -> npt.NDArray[np.float32]:
        rows = np.asarray(decisions)
        self.scored += len(rows)
        return rows[:, 0].astype(np.float32)

    def update(self, measurements: list[Measurement]) -> None:
        pass
