"""The short list is judged by the dear ranker and comes first."""

from __future__ import annotations

import numpy as np
import pytest

from guided_support import toy_model
from search_support import PLATFORM, seconds, task_state
from tensorese.search.rankers.guided import GuidedRanker
from tensorese.search.rankers.online import OnlineRanker
from tensorese.search.rankers.staged import Staged

pytestmark = pytest.mark.null


def test_the_short_list_comes_first_in_the_order_of_the_dear_ranker() -> None:
    draft, verify = OnlineRanker(), GuidedRanker(toy_model(), "any")
    state = task_state()
    space = state.space.sketches[0]
    rows = space.sample(100, np.random.default_rng(2))
    asked = (state.workload, PLATFORM.name, space.sketch)
    drafted = draft.score(*asked, rows)
    staged = Staged(draft, verify, keep=10).score(*asked, rows)
    kept = np.argsort(-drafted, kind="stable")[:10]
    assert set(np.argsort(-staged)[:10].tolist()) == set(kept.tolist())
    times = [seconds(0, rows[k].tolist()) for k in np.argsort(-staged)[:10]]
    assert times == sorted(times)
    rest = np.setdiff1d(np.arange(100), kept)
    assert (np.diff(staged[rest][np.argsort(-drafted[rest])]) <= 0).all()


def test_nothing_kept_is_refused() -> None:
    with pytest.raises(ValueError, match="keep=0"):
        Staged(OnlineRanker(), OnlineRanker(), keep=0)
