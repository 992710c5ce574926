"""Gradient-boosted trees as arrays, run by numpy: how they are stored, walked and evaluated.

Trees generalise from few programs where networks need many; the two err differently. LightGBM
grows them (`training/trees.py`, an extra); whoever loads them needs it no more.
Shape legend: N programs, T trees, K nodes of the largest tree.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Floats32
from tensorese.features.base import feature_set
from tensorese.models.base import Model, ModelError, Tensors, register

LEAF = -1
PARTS = ("feature", "threshold", "left", "right", "value")
SLOWEST, CERTAIN = 2.0**-6, 0.98
"""Of the best's speed: less and more than this, trees are not believed to know."""
CHUNK = 512  # programs at once: places of all trees stay in the cache
Node = tuple[float, float, float, float, float]
"""Feature, threshold, left, right, value; a tree's nodes are in the order they are met."""


class Forest:
    """The sum of the trees' leaves; a value at most the threshold goes left.

    Nodes of all trees are numbered through. `child[2 * k]` is the node left of `k`, the next one
    the node right of it; a leaf leads to itself, so that all trees are walked equally far.
    """

    def __init__(self, parts: Mapping[str, npt.NDArray[Any]]) -> None:
        self.parts = {name: np.asarray(parts[name]) for name in PARTS}
        n_trees, n_nodes = self.parts["feature"].shape
        flat = {name: part.reshape(-1) for name, part in self.parts.items()}
        starts = np.repeat(np.arange(n_trees) * n_nodes, n_nodes)
        at = np.arange(n_trees * n_nodes)
        is_leaf = flat["feature"] == LEAF
        left = np.where(is_leaf, at, flat["left"] + starts)
        right = np.where(is_leaf, at, flat["right"] + starts)
        self.child = np.stack([left, right], axis=1).reshape(-1).astype(np.int32)
        self.feature = np.where(is_leaf, 0, flat["feature"]).astype(np.int32)
        self.columns = int(self.feature.max(initial=0)) + 1
        self.threshold = rounded_down(flat["threshold"].astype(np.float64))
        self.value = flat["value"].astype(np.float32)
        self.roots = (np.arange(n_trees) * n_nodes).astype(np.int32)
        self.depth = self._deepest()

    def _deepest(self) -> int:
        places, depth = set(self.roots.tolist()), 0
        while True:
            inner = [k for k in places if self.child[2 * k] != k]
            if not inner:
                return depth
            places = {int(self.child[2 * k + side]) for k in inner for side in (0, 1)}
            depth += 1

    def predict(self, features: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """`[N]`."""
        if features.shape[1] < self.columns:
            raise ModelError(
                f"these trees read {self.columns} features, but got {features.shape[1]}; restore "
                "the model's folder"
            )
        sums = np.zeros(len(features))
        for at in range(0, len(features), CHUNK):
            part = np.ascontiguousarray(features[at : at + CHUNK], dtype=np.float32)
            values = part.reshape(-1)
            row_N1 = (np.arange(len(part), dtype=np.int32) * part.shape[1])[:, None]
            node_NT = np.repeat(self.roots[None], len(part), axis=0)
            for _ in range(self.depth):
                value_NT = values.take(row_N1 + self.feature.take(node_NT))
                goes_right_NT = value_NT > self.threshold.take(node_NT)
                node_NT = self.child.take(2 * node_NT + goes_right_NT)
            sums[at : at + CHUNK] = self.value.take(node_NT).sum(1, dtype=np.float64)
        return sums


def sum_of(forests: Sequence[Forest]) -> Forest:
    """One forest that predicts the sum of several."""
    size = max(forest.parts["feature"].shape[1] for forest in forests)
    blank = {"feature": LEAF}
    parts = {}
    for name in PARTS:
        padded = [
            np.pad(
                forest.parts[name],
                ((0, 0), (0, size - forest.parts[name].shape[1])),
                constant_values=blank.get(name, 0),
            )
            for forest in forests
        ]
        parts[name] = np.concatenate(padded)
    return Forest(parts)


def mean_of(forests: Sequence[Forest]) -> Forest:
    """One forest that predicts the mean of several."""
    parts = sum_of(forests).parts
    return Forest({**parts, "value": parts["value"] / np.float32(len(forests))})


def rounded_down(threshold: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """The largest 32-bit number not above: values of 32 bits then go the same way."""
    near = threshold.astype(np.float32)
    return np.asarray(np.where(near > threshold, np.nextafter(near, np.float32(-np.inf)), near))


def _folded(forest: Forest) -> dict[str, npt.NDArray[Any]]:
    """As it is stored: a node is a leaf's value or a threshold, and left is the next node.

    6 bytes a node instead of 14 where features and nodes are fewer than 255.
    """
    parts = forest.parts
    is_leaf = parts["feature"] == LEAF
    following = np.broadcast_to(np.arange(1, is_leaf.shape[1] + 1), is_leaf.shape)
    if not (is_leaf | (parts["left"] == following)).all():
        raise ValueError("left of a node must be the next one: grow or pack the trees anew")
    number = np.where(is_leaf, parts["value"], rounded_down(parts["threshold"]))
    feature = np.where(is_leaf, 0, parts["feature"] + 1)  # 0 for a leaf
    right = np.where(is_leaf, 0, parts["right"])
    return {
        "feature": _narrow(feature),
        "right": _narrow(right),
        "number": np.ascontiguousarray(number, dtype=np.float32),
    }


def _narrow(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    kind = np.uint8 if numbers.max(initial=0) < 256 else np.int16
    return np.ascontiguousarray(numbers, dtype=kind)


def _check(folded: Mapping[str, npt.NDArray[Any]]) -> None:
    """Every tree ends, inside itself, at numbers: left is the next node, right a later one."""
    feature, right, number = (folded[name] for name in ("feature", "right", "number"))
    if feature.ndim != 2 or not feature.size or not feature.shape == right.shape == number.shape:
        raise ValueError("the arrays of a forest must be of one shape, trees by nodes")
    if not np.isfinite(number).all():
        raise ValueError("a threshold or a leaf is no finite number")
    nodes = np.arange(feature.shape[1])
    inner = feature != 0
    inside = (right > nodes) & (right < len(nodes)) & (nodes + 1 < len(nodes))
    if (feature < 0).any() or not inside[inner].all():
        raise ValueError("a node's children must be later nodes of its tree")


def _unfolded(folded: Mapping[str, npt.NDArray[Any]]) -> Mapping[str, npt.NDArray[Any]]:
    """What a `Forest` takes."""
    feature = folded["feature"].astype(np.int16) - 1  # LEAF where it was 0
    is_leaf = feature == LEAF
    following = np.broadcast_to(np.arange(1, feature.shape[1] + 1, dtype=np.int16), feature.shape)
    return {
        "feature": feature,
        "threshold": np.where(is_leaf, np.float32(0), folded["number"]),
        "left": np.where(is_leaf, np.int16(0), following),
        "right": folded["right"].astype(np.int16),
        "value": np.where(is_leaf, folded["number"], np.float32(0)),
    }


def tensors_of_forests(forests: Mapping[str, Forest]) -> Tensors:
    return {
        f"{platform}/{name}": part
        for platform, forest in forests.items()
        for name, part in _folded(forest).items()
    }


def forests_of_tensors(platforms: Sequence[str], tensors: Tensors) -> dict[str, Forest]:
    forests = {}
    for platform in platforms:
        folded = {n: tensors[f"{platform}/{n}"] for n in ("feature", "right", "number")}
        _check(folded)
        forests[platform] = Forest(_unfolded(folded))
    return forests


@register
class Trees(Model):
    """A forest a platform on one set of features; a forest predicts a program's share of
    the best's speed."""

    kind: ClassVar[str] = "trees"

    def __init__(self, features: str, forests: Mapping[str, Forest]) -> None:
        self.needs = feature_set(features)
        self.forests = dict(forests)
        self.platforms = tuple(forests)

    def speeds(self, inputs: Floats32, platform: str) -> Floats32:
        """`[N, 1]`."""
        self.head_index(platform)
        share = np.clip(self.forests[platform].predict(inputs), SLOWEST, CERTAIN)
        return np.log2(share).astype(np.float32)[:, None]

    def opinions(self, inputs: Floats32, platform: str) -> Floats32:
        share: Floats32 = np.exp2(self.speeds(inputs, platform))
        logit: Floats32 = np.log(share / (1 - share))
        return logit

    def section(self) -> dict[str, Any]:
        return {"features": self.needs.name}

    def tensors(self, *, half: bool) -> Tensors:
        return tensors_of_forests(self.forests)

    @classmethod
    def build(
        cls, platforms: tuple[str, ...], section: Mapping[str, Any], tensors: Tensors
    ) -> Self:
        return cls(section["features"], forests_of_tensors(platforms, tensors))


def from_lightgbm(booster: Any) -> Forest:
    """The arrays of a trained booster; its features must never be missing or categorical."""
    return _packed([_flat(tree["tree_structure"]) for tree in booster.dump_model()["tree_info"]])


def from_xgboost(booster: Any) -> Forest:
    """The same of XGBoost's, grown with `base_score` 0; there what is below goes left."""
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    grown = learner["gradient_booster"]["model"]["trees"]
    return _packed([_below(tree) for tree in grown])


def _below(tree: Mapping[str, Any]) -> list[Node]:
    feature, left, right = (
        tree[name] for name in ("split_indices", "left_children", "right_children")
    )
    number = np.asarray(tree["split_conditions"], dtype=np.float32)
    threshold = np.nextafter(number, np.float32(-np.inf))  # at most this is below the number
    nodes: list[Node] = []

    def add(k: int) -> int:
        place = len(nodes)
        nodes.append((LEAF, 0.0, 0, 0, float(number[k])))
        if left[k] != LEAF:
            sides = add(left[k]), add(right[k])
            nodes[place] = (feature[k], float(threshold[k]), *sides, 0.0)
        return place

    add(0)
    return nodes


def with_known(forest: Forest, known: Mapping[int, float]) -> Forest:
    """The forest that remains when these features have these values: it asks for the others."""
    return _packed([_pruned(tree, known) for tree in _nodes(forest)])


def _packed(trees: Sequence[Sequence[Node]]) -> Forest:
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
    parts["threshold"] = rounded_down(parts["threshold"])
    return Forest(parts)


def _nodes(forest: Forest) -> Iterator[list[Node]]:
    columns = [forest.parts[name].tolist() for name in PARTS]
    for rows in zip(*columns, strict=True):
        yield list(zip(*rows, strict=True))


def _pruned(tree: Sequence[Node], known: Mapping[int, float]) -> list[Node]:
    nodes: list[Node] = []

    def add(k: int) -> int:
        feature, threshold, left, right, value = tree[k]
        if feature in known:
            return add(int(left if known[int(feature)] <= threshold else right))
        place = len(nodes)
        nodes.append((feature, threshold, 0, 0, value))
        if feature != LEAF:
            nodes[place] = (feature, threshold, add(int(left)), add(int(right)), value)
        return place

    add(0)
    return nodes


def _flat(root: dict[str, Any]) -> list[Node]:
    nodes: list[Node] = []

    def add(node: dict[str, Any]) -> int:
        place = len(nodes)
        nodes.append((LEAF, 0.0, 0, 0, float(node.get("leaf_value", 0.0))))
        if "split_feature" in node:
            left, right = add(node["left_child"]), add(node["right_child"])
            nodes[place] = (node["split_feature"], float(node["threshold"]), left, right, 0.0)
        return place

    add(root)
    return nodes
