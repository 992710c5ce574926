"""Gradient-boosted trees as arrays, run by numpy: a second opinion beside a model's networks.

Trees generalise from few programs where networks need many; the two err differently. They are
grown by LightGBM where a model is made (an extra there) and only read here.
Shape legend: N programs, T trees, K nodes of the largest tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

LEAF = -1
PARTS = ("feature", "threshold", "left", "right", "value")
CHUNK = 512  # programs at once: places of all trees stay in the cache


class Forest:
    """The sum of the trees' leaves; a value at most the threshold goes left."""

    def __init__(self, parts: Mapping[str, npt.NDArray[Any]]) -> None:
        self.parts = {name: np.asarray(parts[name]) for name in PARTS}
        self.n_nodes = self.parts["feature"].shape[1]
        flat = {name: part.reshape(-1) for name, part in self.parts.items()}
        self._feature = flat["feature"].astype(np.int64)
        self._threshold = flat["threshold"].astype(np.float64)
        self._value = flat["value"].astype(np.float64)
        starts = np.repeat(np.arange(len(self.parts["feature"])) * self.n_nodes, self.n_nodes)
        at = np.arange(len(self._feature))
        is_leaf = self._feature == LEAF
        # A leaf leads to itself, so that all trees are walked equally far.
        self._left = np.where(is_leaf, at, flat["left"] + starts)
        self._right = np.where(is_leaf, at, flat["right"] + starts)
        self._feature = np.where(is_leaf, 0, self._feature)
        self._roots = np.arange(len(self.parts["feature"])) * self.n_nodes
        self._depth = self._deepest()

    def _deepest(self) -> int:
        places, depth = set(self._roots.tolist()), 0
        while True:
            inner = [k for k in places if self._left[k] != k]
            if not inner:
                return depth
            places = {int(side[k]) for k in inner for side in (self._left, self._right)}
            depth += 1

    def predict(self, features: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """`[N]`."""
        found = np.zeros(len(features))
        for at in range(0, len(features), CHUNK):
            part = features[at : at + CHUNK].astype(np.float64)
            rows = np.arange(len(part))[:, None]
            node = np.repeat(self._roots[None], len(part), axis=0)
            for _ in range(self._depth):
                goes_left = part[rows, self._feature[node]] <= self._threshold[node]
                node = np.where(goes_left, self._left[node], self._right[node])
            found[at : at + CHUNK] = self._value[node].sum(1)
        return found


def from_lightgbm(booster: Any) -> Forest:
    """The arrays of a trained booster; its features must never be missing or categorical."""
    trees = [_flat(tree["tree_structure"]) for tree in booster.dump_model()["tree_info"]]
    size = max(len(tree) for tree in trees)
    parts: dict[str, npt.NDArray[Any]] = {
        "feature": np.full((len(trees), size), LEAF, dtype=np.int16),
        "threshold": np.zeros((len(trees), size)),
        "left": np.zeros((len(trees), size), dtype=np.int16),
        "right": np.zeros((len(trees), size), dtype=np.int16),
        "value": np.zeros((len(trees), size), dtype=np.float32),
    }
    for t, tree in enumerate(trees):
        for k, node in enumerate(tree):
            for name, value in zip(PARTS, node, strict=True):
                parts[name][t, k] = value
    return Forest(parts)


def _flat(root: dict[str, Any]) -> list[tuple[float, float, float, float, float]]:
    """Nodes in the order they are met: feature, threshold, left, right, value."""
    nodes: list[tuple[float, float, float, float, float]] = []

    def add(node: dict[str, Any]) -> int:
        place = len(nodes)
        nodes.append((LEAF, 0.0, 0, 0, float(node.get("leaf_value", 0.0))))
        if "split_feature" in node:
            left, right = add(node["left_child"]), add(node["right_child"])
            nodes[place] = (node["split_feature"], float(node["threshold"]), left, right, 0.0)
        return place

    add(root)
    return nodes
