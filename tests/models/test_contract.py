"""What every kind of model keeps, by registration."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models_support import MAKERS, read_rows

from tensorese.features.programs import ProgramSet
from tensorese.models.base import (
    CONFIG,
    Card,
    Model,
    ModelError,
    kinds,
    load_model,
    save_model,
)

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


def _sizes(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Places of the whole numbers in a model's config."""
    if isinstance(value, (dict, list)):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in pairs:
            yield from _sizes(inner, (*place, key))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield place


def _with(value: Any, place: tuple[Any, ...], size: int) -> Any:
    copy = json.loads(json.dumps(value))
    inner = copy
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = size
    return copy


def _most_memory(reset: bool = False) -> float:
    """MB that this process held at most since it was last asked to forget."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    line = next(s for s in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in s)
    return int(line.split()[1]) / 1024


@every
def test_sizes_are_those_of_the_weights(kind: str, toy: ProgramSet, tmp_path: Path) -> None:
    model = _model(kind, toy)
    save_model(tmp_path, model, Card())
    config = json.loads((tmp_path / CONFIG).read_text())
    rows = model.needs.shape == "row"
    inputs = model.read_all(toy)
    for place in _sizes(config["section"]):
        for size in (20_000, 10**6, 10**30, -1, 0):
            changed = {**config, "section": _with(config["section"], place, size)}
            (tmp_path / CONFIG).write_text(json.dumps(changed))
            before, started = _most_memory(reset=True), time.monotonic()
            try:
                loaded = load_model(tmp_path)
            except ModelError as error:
                assert "\n" not in str(error)
            else:  # it is no size of what was learnt: it must score, at once
                scores = loaded.rank(inputs if rows else loaded.read_all(toy), model.platforms[0])
                assert np.isfinite(scores).all(), (place, size)
            assert _most_memory() - before < 200, (place, size)
            assert time.monotonic() - started < 5, (place, size)


@every
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_weights_are_finite(kind: str, toy: ProgramSet, tmp_path: Path, wrong: float) -> None:
    model = _model(kind, toy)
    tensors = {name: np.array(tensor) for name, tensor in model.tensors(half=False).items()}
    name = next(name for name, tensor in tensors.items() if tensor.dtype.kind == "f")
    tensors[name].reshape(-1)[-1] = wrong
    model.tensors = lambda *, half: tensors  # type: ignore[method-assign]
    save_model(tmp_path, model, Card())
    with pytest.raises(ModelError, match="finite number"):
        load_model(tmp_path)


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
