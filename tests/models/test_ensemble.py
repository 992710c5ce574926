"""Networks and trees voting."""

from __future__ import annotations

import numpy as np
import pytest
from models_support import physics_model, stump, trees_model

from tensorese.arrays import Floats32
from tensorese.features.physics import feature_names
from tensorese.models.base import ModelError
from tensorese.models.ensemble import Ensemble, Member
from tensorese.models.trees import Trees

pytestmark = pytest.mark.null


def _features(n: int = 40) -> Floats32:
    rng = np.random.default_rng(1)
    return rng.normal(1.5, 2, (n, len(feature_names("cpu")))).astype(np.float32)


def test_trees_have_as_many_votes_as_they_are_given() -> None:
    networks, features = physics_model(), _features()
    trees = Trees("physics-cpu", {"two-2c": stump()})
    both = Ensemble([Member(model=networks), Member(model=trees, votes=6)])
    share = stump().predict(features)
    wanted = (2 * networks.rank(features, "two-2c") + 6 * np.log(share / (1 - share))) / 8
    np.testing.assert_allclose(both.rank(features, "two-2c"), wanted, atol=1e-5)
    speeds = both.speeds(features, "two-2c")
    assert speeds.shape == (40, 8)
    np.testing.assert_allclose(speeds[:, 2], np.log2(share), atol=1e-5)


def test_who_does_not_know_a_platform_has_no_vote_there() -> None:
    networks, features = physics_model(), _features()
    trees = Trees("physics-cpu", {"two-2c": stump()})
    both = Ensemble([Member(model=networks), Member(model=trees, votes=6)])
    np.testing.assert_array_equal(both.rank(features, "one-1c"), networks.rank(features, "one-1c"))
    assert both.speeds(features, "one-1c").shape == (40, 2)


def test_members_read_the_same_features() -> None:
    members = [Member(model=physics_model()), Member(model=trees_model(machine="cuda"))]
    with pytest.raises(ModelError, match=r"same features, but got physics-cpu .*physics-cuda"):
        Ensemble(members)
    with pytest.raises(ModelError, match="got none"):
        Ensemble([])
