"""Trees as arrays: walked as LightGBM walks them, kept small, asked as a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models_support import stump

from tensorese.models.base import WEIGHTS, Card, load_model, save_model
from tensorese.models.trees import LEAF, Forest, Trees, from_lightgbm, mean_of, sum_of, with_known

pytestmark = pytest.mark.null


def test_astump() -> None:
    features = np.array([[1.0, 9], [1.5, 9], [1.6, 9]], dtype=np.float32)
    np.testing.assert_allclose(stump().predict(features), [0.35, 0.35, 0.85], rtol=1e-6)
    assert stump().predict(features[:0]).shape == (0,)


def test_the_mean_of_forests_of_different_size() -> None:
    features = np.array([[1.0, 9], [1.6, 1]], dtype=np.float32)
    one = Forest({name: part[:1] for name, part in stump().parts.items()})
    leaf = Forest({name: part[1:, :1] for name, part in stump().parts.items()})
    both = mean_of([leaf, one, stump(1)])
    wanted = (leaf.predict(features) + one.predict(features) + stump(1).predict(features)) / 3
    np.testing.assert_allclose(both.predict(features), wanted, rtol=1e-6)
    total = sum_of([leaf, one, stump(1)]).predict(features)
    np.testing.assert_allclose(total, 3 * wanted, rtol=1e-6)


def test_what_is_known_is_asked_no_more() -> None:
    features = np.array([[1.0, 9], [1.6, 1]], dtype=np.float32)
    both = mean_of([stump(0), stump(1)])
    left = with_known(both, {1: 2.0})
    assert set(left.parts["feature"].flat) == {LEAF, 0}
    filled = np.where([False, True], 2.0, features).astype(np.float32)
    np.testing.assert_allclose(left.predict(features), both.predict(filled), rtol=1e-6)
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
    other = mean_of([forest, stump()])
    save_model(tmp_path, Trees("physics-cpu", {"a": forest, "b": other}), Card())
    kept = load_model(tmp_path)
    assert isinstance(kept, Trees)
    np.testing.assert_array_equal(kept.forests["a"].predict(x), forest.predict(x))
    np.testing.assert_array_equal(kept.forests["b"].predict(x), other.predict(x))
    whole = sum(np.ascontiguousarray(part).nbytes for part in other.parts.values())
    assert (tmp_path / WEIGHTS).stat().st_size < 1.5 * whole  # both, in less than twice one


def test_nodes_out_of_order_are_not_kept(tmp_path: Path) -> None:
    swapped = {**stump().parts, "left": stump().parts["right"], "right": stump().parts["left"]}
    with pytest.raises(ValueError, match="must be the next one"):
        save_model(tmp_path, Trees("physics-cpu", {"a": Forest(swapped)}), Card())


def test_a_threshold_between_two_values_of_32_bits() -> None:
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
    opinions = Trees("physics-cpu", {"a": forest}).opinions(values, "a")[:, 0]
    np.testing.assert_allclose(1 / (1 + np.exp(-opinions)), [0.7, 0.2], rtol=1e-5)


def test_extreme_shares_are_not_believed() -> None:
    parts = {**stump().parts, "value": np.array([[0, -5.0, 5.0], [0, 0, 0]])}
    features = np.array([[1.0], [2.0]], dtype=np.float32)
    speeds = Trees("physics-cpu", {"a": Forest(parts)}).speeds(features, "a")
    np.testing.assert_allclose(speeds[:, 0], [-6.0, np.log2(0.98)], rtol=1e-5)


@pytest.mark.parametrize(
    ("part", "at", "value"),
    [
        ("right", (0, 0), 0),  # a cycle
        ("right", (0, 0), 9),
        ("right", (0, 0), 255),
        ("feature", (0, 2), 1),  # its left would lie outside
        ("number", (0, 0), np.nan),
        ("number", (0, 2), np.inf),
    ],
)
def test_trees_that_do_not_end_in_numbers_are_refused(
    part: str, at: tuple[int, int], value: float
) -> None:
    tensors = Trees("physics-cpu", {"a": stump()}).tensors(half=False)
    Trees.build(("a",), {"features": "physics-cpu"}, tensors)
    tensors[f"a/{part}"][at] = value
    with pytest.raises(ValueError, match=r"must be|no finite"):
        Trees.build(("a",), {"features": "physics-cpu"}, tensors)
