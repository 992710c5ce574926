"""Trees grown on made-up rows say what their libraries say, and rank."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from lowered_support import with_made_up
from tensorese.features.programs import ProgramSet
from tensorese.models.store_trees import Objective, StoreTrees, program_rows, store_rows
from tensorese.models.trees import from_lightgbm, from_xgboost
from tensorese.training.labels import only
from tensorese.training.recipes import recipe_class
from tensorese.training.recipes.base import (
    DataSelection,
    Trained,
    TrainingJob,
    apply_settings,
    make_sides,
)
from training_support import NEW, OLD, cpu_programs, pairs_in_order

pytestmark = pytest.mark.null


@pytest.fixture(scope="module")
def lowered(tmp_path_factory: pytest.TempPathFactory) -> ProgramSet:
    return with_made_up(cpu_programs(tmp_path_factory.mktemp("lakes")))


def _train(kind: str, objective: str, programs: ProgramSet, **settings: str) -> Trained:
    recipe = recipe_class(kind).named(kind, "default", DataSelection())
    wanted = {"objective": objective, "rounds": "40", **settings}
    sides = make_sides(programs, DataSelection())
    return apply_settings(recipe, wanted).train(
        TrainingJob(programs=programs, sides=sides, stores=())
    )


@pytest.mark.parametrize("objective", get_args(Objective))
@pytest.mark.parametrize("kind", ["xgboost", "lightgbm"])
def test_both_libraries_learn_either_way(kind: str, objective: str, lowered: ProgramSet) -> None:
    pytest.importorskip(kind)
    trained = _train(kind, objective, lowered)
    model = trained.model
    assert isinstance(model, StoreTrees) and (model.kind, model.objective) == (kind, objective)
    assert set(model.platforms) == {OLD, NEW} and "on validation tasks" in trained.notes[0]
    held_out = make_sides(lowered, DataSelection()).held_out
    # A store does not see how many there are of it, which is what was made up at random.
    least = 0.65 if objective == "rank" else 0.56
    for platform in model.platforms:
        assert pairs_in_order(model, lowered, platform, held_out) > least
    other = pairs_in_order(model, lowered, OLD, held_out, label=NEW)
    assert other < pairs_in_order(model, lowered, OLD, held_out)  # a forest a platform


def test_a_forest_says_what_its_library_says() -> None:
    xgboost, lightgbm = pytest.importorskip("xgboost"), pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, (400, 12)).astype(np.float32) / 4  # many values on a threshold
    x[:, 3] = 0.0
    y = x[:, 0] * x[:, 1] + np.sin(x[:, 2])
    settings = {"max_depth": 6, "eta": 0.3, "base_score": 0.0}
    data = xgboost.DMatrix(x, y)
    booster = xgboost.train(settings, data, 30)
    said = from_xgboost(booster).predict(x)
    np.testing.assert_allclose(said, booster.predict(data), rtol=1e-5, atol=1e-5)
    grown = lightgbm.train({"verbose": -1}, lightgbm.Dataset(x, y), 30)
    np.testing.assert_allclose(from_lightgbm(grown).predict(x), grown.predict(x), atol=1e-5)


def test_rows_of_programs_and_stores(lowered: ProgramSet) -> None:
    ragged = lowered.lowered
    assert ragged is not None
    rows, stores = program_rows(ragged), store_rows(ragged)
    columns, k = ragged.values.shape[1], int(np.argmax(ragged.counts > 1))
    mine = ragged.take(np.array([k])).values
    np.testing.assert_array_equal(rows[k, :columns], mine.max(0))
    np.testing.assert_allclose(rows[k, columns : 2 * columns], mine.mean(0), atol=1e-6)
    assert rows[k, 2 * columns] == len(mine) and len(stores) == ragged.counts.sum()
    assert not rows[ragged.counts == 0, : 2 * columns].any()


def test_the_first_setting_is_taken_where_none_is_chosen(lowered: ProgramSet) -> None:
    pytest.importorskip("xgboost")
    trained = _train("xgboost", "pack-sum", only(lowered, OLD), choose="false")
    assert trained.model.platforms == (OLD,) and "not chosen" in trained.notes[0]
