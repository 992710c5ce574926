"""What every ranker must keep, whatever it has or has not learnt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from guided_support import toy_model
from search_support import PLATFORM, drawn, measured, seconds, task_state
from tensorese.records.nouns import Platform, Status
from tensorese.search.contracts import Ranker, TaskState
from tensorese.search.rankers.guided import AutoRanker, GuidedRanker
from tensorese.search.rankers.online import OnlineRanker
from tensorese.search.rankers.staged import Staged

pytestmark = pytest.mark.null

Rows = npt.NDArray[np.int64]


def _fresh() -> Ranker:
    return OnlineRanker()


def _trained() -> Ranker:
    ranker = OnlineRanker()
    state = task_state()
    ranker.update(measured(state, drawn(state, 32)))
    return ranker


def _sibling() -> Ranker:
    """Has seen another task only."""
    ranker = OnlineRanker(shared=True)
    state = task_state(extents=(128, 32, 64))
    ranker.update(measured(state, drawn(state, 32)))
    return ranker


def _guided() -> Ranker:
    return GuidedRanker(toy_model(), "any")


def _auto() -> Ranker:
    return AutoRanker(GuidedRanker(toy_model(-1), "any"))


MAKERS: dict[str, Callable[[], Ranker]] = {
    "online, nothing learnt": _fresh,
    "online": _trained,
    "online, another task learnt": _sibling,
    "guided by a good model": _guided,
    "auto with a bad model": _auto,
    "staged": lambda: Staged(OnlineRanker(), _guided(), keep=1000),
}
every = pytest.mark.parametrize("name", list(MAKERS))


def _rows(state: TaskState, n: int, sketch: int = 0) -> Rows:
    return state.space.sketches[sketch].sample(n, np.random.default_rng(5))


def _score(ranker: Ranker, state: TaskState, rows: Rows, sketch: int = 0) -> Rows:
    place = state.space.sketches[sketch].sketch
    return ranker.score(state.workload, PLATFORM.name, place, rows)  # type: ignore[return-value]


@every
def test_one_finite_score_a_row(name: str) -> None:
    ranker, state = MAKERS[name](), task_state()
    for n in (0, 1, 50):
        scores = _score(ranker, state, _rows(state, n))
        assert scores.shape == (n,)
        assert scores.dtype == np.float32
        assert np.isfinite(scores).all()
    assert len(np.unique(scores)) > 10
    assert ranker.name
    assert ranker.needs.name


@every
def test_a_score_does_not_depend_on_batch_mates(name: str) -> None:
    ranker, state = MAKERS[name](), task_state()
    rows = _rows(state, 40)
    together = _score(ranker, state, rows)
    alone = [float(_score(ranker, state, rows[k : k + 1])[0]) for k in range(len(rows))]
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)


@every
def test_the_same_question_has_the_same_answer(name: str) -> None:
    state = task_state()
    rows = _rows(state, 20)
    one, other = (_score(MAKERS[name](), state, rows) for _ in range(2))
    np.testing.assert_array_equal(one, other)


@every
def test_nothing_new_changes_nothing(name: str) -> None:
    ranker, state = MAKERS[name](), task_state()
    rows = _rows(state, 20)
    before = _score(ranker, state, rows)
    ranker.update([])
    np.testing.assert_array_equal(before, _score(ranker, state, rows))


@every
def test_another_platform_teaches_nothing(name: str) -> None:
    ranker, state = MAKERS[name](), task_state()
    rows = _rows(state, 20)
    before = _score(ranker, state, rows)
    elsewhere = [
        replace(m, platform=Platform(name="else")) for m in measured(state, drawn(state, 16))
    ]
    ranker.update(elsewhere)
    np.testing.assert_array_equal(before, _score(ranker, state, rows))


@every
def test_failures_alone_are_learnt_from(name: str) -> None:
    ranker, state = MAKERS[name](), task_state()
    bad = drawn(state, 8, seed=11)
    failed = np.array([p.row for p in bad if p.sketch == 0])
    before = _score(ranker, state, failed)
    ranker.update(measured(state, bad, Status.RUN_ERROR))
    after = _score(ranker, state, failed)
    assert np.isfinite(after).all()
    assert after.mean() < before.mean() - 0.1


@every
def test_a_fault_of_the_machinery_is_no_label(name: str) -> None:
    ranker, state = MAKERS[name](), task_state()
    rows = _rows(state, 20)
    before = _score(ranker, state, rows)
    ranker.update(measured(state, drawn(state, 8), Status.INFRA_ERROR))
    np.testing.assert_array_equal(before, _score(ranker, state, rows))


@every
def test_learns_which_rows_are_fast(name: str) -> None:
    ranker, state = MAKERS[name](), task_state()
    ranker.update(measured(state, drawn(state, 32, seed=3)))
    for sketch in (0, 1):
        rows = _rows(state, 300, sketch)
        scores = _score(ranker, state, rows, sketch)
        slow = np.array([seconds(sketch, row) for row in rows.tolist()])
        ranks = np.corrcoef(np.argsort(np.argsort(scores)), np.argsort(np.argsort(-slow)))
        assert ranks[0, 1] > 0.6
