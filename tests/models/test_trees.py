"""Trees as arrays: walked as LightGBM walks them, and heard beside the networks."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from test_physics_net import small_model

from tensorese.features.physics import feature_names
from tensorese.models.batch import ProgramBatch
from tensorese.models.disk import TREES, Card, ModelError, read_config
from tensorese.models.folder import load_model, save_model
from tensorese.models.physics_net import SmallModel
from tensorese.models.tree_votes import Placed, TreeVotes
from tensorese.models.trees import (
    CHUNK,
    LEAF,
    Forest,
    add_trees,
    from_lightgbm,
    mean_of,
    read_forests,
    sum_of,
    with_known,
)

pytestmark = pytest.mark.null


def _stump(feature: int = 0) -> Forest:
    """0.25 up to 1.5 in one feature, 0.75 above; and a tree that always says 0.1."""
    return Forest(
        {
            "feature": np.array([[feature, LEAF, LEAF], [LEAF, LEAF, LEAF]]),
            "threshold": np.array([[1.5, 0, 0], [0, 0, 0]]),
            "left": np.array([[1, 0, 0], [0, 0, 0]]),
            "right": np.array([[2, 0, 0], [0, 0, 0]]),
            "value": np.array([[0, 0.25, 0.75], [0.1, 0, 0]]),
        }
    )


def test_a_stump() -> None:
    features = np.array([[1.0, 9], [1.5, 9], [1.6, 9]], dtype=np.float32)
    np.testing.assert_allclose(_stump().predict(features), [0.35, 0.35, 0.85], rtol=1e-6)
    assert _stump().predict(features[:0]).shape == (0,)


def test_the_mean_of_forests_of_different_size() -> None:
    features = np.array([[1.0, 9], [1.6, 1]], dtype=np.float32)
    one = Forest({name: part[:1] for name, part in _stump().parts.items()})
    leaf = Forest({name: part[1:, :1] for name, part in _stump().parts.items()})
    both = mean_of([leaf, one, _stump(1)])
    wanted = (leaf.predict(features) + one.predict(features) + _stump(1).predict(features)) / 3
    np.testing.assert_allclose(both.predict(features), wanted, rtol=1e-6)
    total = sum_of([leaf, one, _stump(1)]).predict(features)
    np.testing.assert_allclose(total, 3 * wanted, rtol=1e-6)


def test_what_is_known_is_asked_no_more() -> None:
    features = np.array([[1.0, 9], [1.6, 1]], dtype=np.float32)
    both = mean_of([_stump(0), _stump(1)])
    left = with_known(both, {1: 2.0})
    assert set(left.parts["feature"].flat) == {LEAF, 0}
    told = np.where([False, True], 2.0, features).astype(np.float32)
    np.testing.assert_allclose(left.predict(features), both.predict(told), rtol=1e-6)
    nothing = with_known(both, {0: 1.5, 1: 1.6})  # a value at the threshold goes left
    np.testing.assert_allclose(nothing.predict(features), [0.6, 0.6], rtol=1e-6)


def test_as_lightgbm_says() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 6)).astype(np.float32)
    y = np.where(x[:, 0] > 0, x[:, 1], -x[:, 2]) + 0.1 * rng.normal(size=1500)
    settings = {"num_leaves": 15, "verbose": -1, "num_threads": 1, "seed": 0}
    booster = lightgbm.train(settings, lightgbm.Dataset(x, y), 20)
    forest, wanted = from_lightgbm(booster), booster.predict(x)
    np.testing.assert_allclose(forest.predict(x), wanted, rtol=1e-5, atol=1e-6)
    placed = Placed(forest, torch.device("cpu")).predict(torch.from_numpy(x))
    np.testing.assert_allclose(placed.numpy(), wanted, rtol=1e-5, atol=1e-6)


def _features(n: int = 40) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    rng = np.random.default_rng(1)
    return rng.normal(1.5, 2, (n, len(feature_names("cpu")))).astype(np.float32)


def test_trees_count_as_much_as_all_networks(tmp_path: Path) -> None:
    save_model(tmp_path, small_model(), Card())
    features = _features()
    alone = SmallModel(tmp_path)
    add_trees(tmp_path, {"two-2c": _stump()})
    both = SmallModel(tmp_path)
    np.testing.assert_array_equal(both.score(features, 0), alone.score(features, 0))
    share = _stump().predict(features)
    wanted = (alone.score(features, 1) + np.log(share / (1 - share))) / 2
    np.testing.assert_allclose(both.score(features, 1), wanted, atol=1e-5)
    speeds = both.speed(features, 1)
    assert speeds.shape == (40, 4) and both.speed(features, 0).shape == (40, 2)
    np.testing.assert_allclose(speeds[:, 2], np.log2(share), atol=1e-5)


def _by_torch(folder: Path, features: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    model = load_model(folder).model
    values = torch.from_numpy(features)
    nobody = torch.zeros(len(features), dtype=torch.int64)
    batch = ProgramBatch(sketches=None, sketch_N=nobody, values_NV=values)  # type: ignore[arg-type]
    with torch.inference_mode():
        return model.rank(model(batch), values, model.platforms).numpy()


@pytest.mark.parametrize("doubt", [0.0, 0.5])
def test_torch_hears_the_same_trees(tmp_path: Path, doubt: float) -> None:
    """`tensorese eval` judges what `tensorese tune` asks."""
    save_model(tmp_path, small_model(doubt=doubt), Card())
    add_trees(tmp_path, {"two-2c": _stump()}, 3)
    features = _features(CHUNK + 5)
    small = SmallModel(tmp_path)
    said = _by_torch(tmp_path, features)
    np.testing.assert_allclose(said[:, 1], small.score(features, 1), rtol=1e-4, atol=1e-4)
    if not doubt:  # a platform without trees
        np.testing.assert_allclose(said[:, 0], small.score(features, 0), rtol=1e-4, atol=1e-4)


def test_a_saved_model_keeps_its_trees(tmp_path: Path) -> None:
    save_model(tmp_path / "a", small_model(), Card())
    add_trees(tmp_path / "a", {"two-2c": _stump()}, 3)
    save_model(tmp_path / "b", load_model(tmp_path / "a").model, Card())
    kept = SmallModel(tmp_path / "b")
    assert kept.votes == 3 and set(kept.forests) == {"two-2c"}


def _grown(n_features: int = 6, leaves: int = 15) -> tuple[Forest, np.ndarray[Any, Any]]:
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, n_features)).astype(np.float32)
    settings = {"num_leaves": leaves, "verbose": -1, "num_threads": 1, "min_data_in_leaf": 1}
    y = x.sum(1) + rng.normal(size=len(x))
    return from_lightgbm(lightgbm.train(settings, lightgbm.Dataset(x, y), 10)), x


@pytest.mark.parametrize(("n_features", "leaves"), [(6, 15), (300, 15), (6, 255)])
def test_trees_on_disk_say_the_same(tmp_path: Path, n_features: int, leaves: int) -> None:
    """Also where features or nodes do not fit into a byte."""
    forest, x = _grown(n_features, leaves)
    save_model(tmp_path, small_model(), Card())
    add_trees(tmp_path, {"two-2c": forest, "one-1c": mean_of([forest, _stump()])})
    kept = read_forests(tmp_path, read_config(tmp_path))
    np.testing.assert_array_equal(kept["two-2c"].predict(x), forest.predict(x))
    other = mean_of([forest, _stump()]).predict(x)
    np.testing.assert_array_equal(kept["one-1c"].predict(x), other)


def test_trees_of_before_are_read(tmp_path: Path) -> None:
    forest, x = _grown()
    save_model(tmp_path, small_model(), Card())
    add_trees(tmp_path, {"two-2c": forest})
    small = (tmp_path / TREES).stat().st_size
    whole = {f"two-2c/{name}": np.ascontiguousarray(part) for name, part in forest.parts.items()}
    save_file(whole, tmp_path / TREES)
    assert small < 0.6 * (tmp_path / TREES).stat().st_size
    digest = hashlib.sha256((tmp_path / TREES).read_bytes()).hexdigest()
    config = {**read_config(tmp_path), "trees_sha256": digest}
    kept = read_forests(tmp_path, config)["two-2c"]
    np.testing.assert_array_equal(kept.predict(x), forest.predict(x))


def test_nodes_out_of_order_are_not_kept(tmp_path: Path) -> None:
    save_model(tmp_path, small_model(), Card())
    swapped = {**_stump().parts, "left": _stump().parts["right"], "right": _stump().parts["left"]}
    with pytest.raises(ValueError, match="must be the next one"):
        add_trees(tmp_path, {"two-2c": Forest(swapped)})


def test_torch_walks_as_numpy_does() -> None:
    """Also where a 64-bit threshold lies between two 32-bit values."""
    near = np.float32(1.1)
    forest = Forest(
        {
            "feature": np.array([[0, LEAF, LEAF]]),
            "threshold": np.array([[float(near) - 1e-12, 0, 0]]),
            "left": np.array([[1, 0, 0]]),
            "right": np.array([[2, 0, 0]]),
            "value": np.array([[0, 0.2, 0.7]]),
        }
    )
    values = np.array([[near], [np.nextafter(near, np.float32(0))]], dtype=np.float32)
    np.testing.assert_allclose(forest.predict(values), [0.7, 0.2], rtol=1e-6)
    given = torch.from_numpy(values)
    said = Placed(forest, torch.device("cpu")).predict(given)
    np.testing.assert_allclose(said.numpy(), [0.7, 0.2], rtol=1e-6)
    votes = TreeVotes({"p": forest}, 1).beside(torch.zeros(2, 1, 1), given, ("p",))[:, 0, 1]
    np.testing.assert_allclose(torch.sigmoid(votes).numpy(), [0.7, 0.2], rtol=1e-5)


def test_trees_have_as_many_votes_as_they_are_given(tmp_path: Path) -> None:
    save_model(tmp_path, small_model(), Card())
    features = _features()
    alone = SmallModel(tmp_path).score(features, 1)
    add_trees(tmp_path, {"two-2c": _stump()}, 6)
    share = _stump().predict(features)
    wanted = (2 * alone + 6 * np.log(share / (1 - share))) / 8
    model = SmallModel(tmp_path)
    np.testing.assert_allclose(model.score(features, 1), wanted, atol=1e-5)
    assert model.speed(features, 1).shape == (40, 8)


def test_damaged_trees_are_noticed(tmp_path: Path) -> None:
    save_model(tmp_path, small_model(), Card())
    add_trees(tmp_path, {"two-2c": _stump()})
    data = bytearray((tmp_path / TREES).read_bytes())
    data[-1] ^= 1
    (tmp_path / TREES).write_bytes(bytes(data))
    with pytest.raises(ModelError, match=r"trees\.safetensors must match the checksum"):
        SmallModel(tmp_path)
