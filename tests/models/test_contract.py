"""What every kind of model keeps, by registration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models_support import MAKERS, read_rows

from tensorese.features.programs import ProgramSet
from tensorese.models.base import Card, Model, ModelError, kinds, load_model, save_model

pytestmark = pytest.mark.null

every = pytest.mark.parametrize("kind", kinds())


def _model(kind: str, toy: ProgramSet) -> Model:
    return MAKERS[kind](toy.spec(), toy.machine, ("fast", "slow"))


@every
def test_one_finite_score_a_program(kind: str, toy: ProgramSet) -> None:
    model = _model(kind, toy)
    inputs = model.read_all(toy)
    for platform in model.platforms:
        scores, opinions = model.rank(inputs, platform), model.opinions(inputs, platform)
        assert scores.shape == (len(toy),) and scores.dtype == np.float32
        assert opinions.shape[0] == len(toy) and np.isfinite(opinions).all()
        assert len(np.unique(scores)) > 5
        np.testing.assert_allclose(scores, opinions.mean(1), rtol=1e-6)
        speeds = model.speeds(inputs, platform)
        assert speeds.shape == opinions.shape and (speeds <= 0).all()


@every
def test_one_sketch_scores_as_in_a_mixed_set(kind: str, toy: ProgramSet) -> None:
    model = _model(kind, toy)
    platform = model.platforms[-1]
    whole = model.rank(model.read_all(toy), platform)
    for k in (0, len(toy.pairs) - 1):
        pair = toy.pairs[k]
        inputs = read_rows(model, toy.workloads[pair.workload], pair.sketch, toy.decisions[k])
        np.testing.assert_allclose(
            model.rank(inputs, platform), whole[toy.members[k]], rtol=1e-4, atol=1e-5
        )
        empty = np.zeros((0, pair.sketch.n_decisions), dtype=np.int64)
        nothing = read_rows(model, toy.workloads[pair.workload], pair.sketch, empty)
        assert model.rank(nothing, platform).shape == (0,)


@every
def test_a_folder_scores_as_what_was_saved(kind: str, toy: ProgramSet, tmp_path: Path) -> None:
    model = _model(kind, toy)
    card = Card(command="made", training_workloads=("w",), targets={"fast": "{}"})
    save_model(tmp_path, model, card)
    loaded = load_model(tmp_path)
    assert (loaded.kind, loaded.platforms, loaded.needs) == (kind, model.platforms, model.needs)
    assert loaded.card == card and loaded.hash == model.hash and len(model.hash) == 8
    for platform in model.platforms:
        before, after = (m.speeds(m.read_all(toy), platform) for m in (model, loaded))
        np.testing.assert_array_equal(before, after)


@every
def test_half_precision_moves_scores_little(kind: str, toy: ProgramSet, tmp_path: Path) -> None:
    model = _model(kind, toy)
    save_model(tmp_path, model, Card(), half=True)
    loaded, platform = load_model(tmp_path), model.platforms[0]
    before, after = (m.rank(m.read_all(toy), platform) for m in (model, loaded))
    np.testing.assert_allclose(after, before, atol=0.05)


@every
def test_an_unknown_platform_is_named_with_a_guess(kind: str, toy: ProgramSet) -> None:
    model = _model(kind, toy)
    with pytest.raises(ModelError, match=r"'fats' \(did you mean 'fast'\?\)"):
        model.rank(model.read_all(toy), "fats")


@every
def test_features_of_another_version_are_refused(
    kind: str, toy: ProgramSet, tmp_path: Path
) -> None:
    save_model(tmp_path, _model(kind, toy), Card())
    config = tmp_path / "config.json"
    version = _model(kind, toy).needs.version
    config.write_text(config.read_text().replace(f'"version": "{version}"', '"version": "feed"'))
    with pytest.raises(ModelError, match=f"feed and this program has .* {version}; train it"):
        load_model(tmp_path)
