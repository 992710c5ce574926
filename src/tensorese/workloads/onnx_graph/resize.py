"""Resize and Upsample, axis by axis: a few shifted copies of the input, weighted and added.

TVM's own resize is right for whole factors and nearest neighbours, and it is kept there; of other
modes it computes half otherwise than ONNX says, and it resizes images of rank four alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensorese.workloads.onnx_graph.graph import Array, Graph, Node

_MOST_TAPS = 8  # of one output; above, a product with a matrix


@dataclass(frozen=True, kw_only=True)
class Axis:
    """How one axis is resized."""

    axis: int
    before: int
    after: int
    scale: float
    roi: tuple[float, float]


def resize(graph: Graph, node: Node) -> Sequence[str] | None:
    if not np.issubdtype(graph.dtype(node.inputs[0]), np.floating):
        return None
    node = _with_defaults(node, graph.opset)
    axes = _axes(graph, node)
    x = node.inputs[0]
    if node.get("mode") == "nearest" and len(graph.shape(x)) == 4 and node.op == "Resize":
        if all(_is_whole_factor(node, one) for one in axes) and {1, 0}.isdisjoint(
            one.axis for one in axes
        ):
            return _nearest(graph, x, axes)
    dtype = graph.dtype(x)
    for one in axes:
        x = _along(graph, x, one.axis, _weights(node, one), dtype)
    return [x]


def _with_defaults(node: Node, opset: int) -> Node:
    """Before opset 11 there was one way to place pixels."""
    new = opset >= 11
    defaults = {
        "mode": "nearest",
        "coordinate_transformation_mode": "half_pixel" if new else "asymmetric",
        "nearest_mode": "round_prefer_floor" if new else "floor",
    }
    attributes = {**defaults, **node.attributes}
    return Node(**{**node.__dict__, "attributes": attributes})


def _nearest(graph: Graph, x: str, axes: Sequence[Axis]) -> Sequence[str] | None:
    """As TVM takes it; the rule is not applied again to its own output."""
    factors = [1.0] * len(graph.shape(x))
    for one in axes:
        factors[one.axis] = one.after / one.before
    scales, attributes = graph.const(factors, np.float32), {"mode": "nearest"}
    inputs: tuple[str, ...] = (x, scales)
    if graph.opset >= 11:
        inputs = (x, graph.const([], np.float32), scales)  # opset 11 wants a region, used or not
        attributes |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    call = Node(
        op="Resize",
        domain="",
        name="",
        inputs=inputs,
        outputs=1,
        used=(True,),
        attributes=attributes,
    )
    return graph.keep(call)


def _axes(graph: Graph, node: Node) -> list[Axis]:
    """The axes that change."""
    x = node.inputs[0]
    before = graph.shape(x)
    roi_at, scales_at, sizes_at = (1, 2, 3) if graph.opset >= 11 else (-1, 1, -1)
    listed = [int(a) % len(before) for a in node.get("axes") or range(len(before))]
    scales = node.get("scales")
    if scales is None and node.input(scales_at) and graph.known(node.input(scales_at)).size:
        scales = graph.known(node.input(scales_at)).tolist()
    roi = graph.known(node.input(roi_at)).tolist() if roi_at > 0 and node.input(roi_at) else []
    sizes = None
    if scales is None:
        sizes = [int(s) for s in graph.known(node.input(sizes_at))]
        scales = [s / before[a] for s, a in zip(sizes, listed, strict=True)]
        policy = node.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            common = min(scales) if policy == "not_larger" else max(scales)
            scales = [common] * len(listed)
            sizes = [math.floor(common * before[a] + 0.5) for a in listed]
    crops = node.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    axes = []
    for index, axis in enumerate(listed):
        scale, extent = float(scales[index]), before[axis]
        start, end = (roi[index], roi[index + len(listed)]) if crops and roi else (0.0, 1.0)
        after = sizes[index] if sizes else math.floor(extent * scale * (end - start))
        one = Axis(axis=axis, before=extent, after=after, scale=scale, roi=(start, end))
        if after != extent or scale != 1 or (start, end) != (0.0, 1.0):
            axes.append(one)
    return axes


def _places(node: Node, one: Axis) -> Array:
    """Where each output lies on the input's axis."""
    x = np.arange(one.after, dtype=np.float64)
    mode = node.get("coordinate_transformation_mode")
    if mode == "half_pixel":
        return (x + 0.5) / one.scale - 0.5
    if mode == "half_pixel_symmetric":
        adjusted = one.after / (one.scale * one.before)
        return one.before / 2 * (1 - adjusted) + (x + 0.5) / one.scale - 0.5
    if mode == "pytorch_half_pixel":
        return (x + 0.5) / one.scale - 0.5 if one.after > 1 else np.zeros(1)
    if mode == "align_corners":
        return x * (one.before - 1) / (one.after - 1) if one.after > 1 else np.zeros(1)
    if mode == "asymmetric":
        return x / one.scale
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) / one.scale
    if mode == "tf_crop_and_resize":
        (start, end), last = one.roi, one.before - 1
        if one.after == 1:
            return np.array([0.5 * (start + end) * last])
        return start * last + x * (end - start) * last / (one.after - 1)
    raise ValueError(f"Resize by {mode}")


def _is_whole_factor(node: Node, one: Axis) -> bool:
    if one.after % one.before:
        return False
    return np.array_equal(
        _weights(node, one).argmax(1), np.arange(one.after) // (one.after // one.before)
    )


def _weights(node: Node, one: Axis) -> Array:
    """[after, before]: what every output takes from every input."""
    places, mode = _places(node, one), node.get("mode")
    if mode == "nearest":
        rows = _nearest_places(node, places)
        weights = np.zeros((one.after, one.before))
        weights[np.arange(one.after), np.clip(rows, 0, one.before - 1)] = 1
        return weights
    if node.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        inside = (places >= 0) & (places <= one.before - 1)
        if not inside.all():
            raise ValueError("Resize that crops beyond the image")
    stretch = min(1.0, one.scale) if node.get("antialias", 0) else 1.0
    reach = (2 if mode == "cubic" else 1) / stretch
    weights = np.zeros((one.after, one.before))
    outside = bool(node.get("exclude_outside", 0))
    for row, place in enumerate(places):
        first = math.floor(place - reach) + 1
        taps = np.arange(first, math.floor(place + reach) + 1)
        curve = _cubic if mode == "cubic" else _linear
        values = curve(np.abs(taps - place) * stretch, float(node.get("cubic_coeff_a", -0.75)))
        if outside:
            values = np.where((taps < 0) | (taps >= one.before), 0, values)
        values = values / values.sum()
        np.add.at(weights[row], np.clip(taps, 0, one.before - 1), values)
    return weights


def _nearest_places(node: Node, places: Array) -> Array:
    # A place on a boundary in exact arithmetic stays on it: 1 / (1 / 3) is less than three.
    near = np.round(places * 2) / 2
    places = np.where(np.abs(places - near) < 1e-6, near, places)
    rounding: dict[str, Callable[[Array], Array]] = {
        "round_prefer_floor": lambda p: np.ceil(p - 0.5),
        "round_prefer_ceil": lambda p: np.floor(p + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    return np.asarray(rounding[node.get("nearest_mode")](places)).astype(np.int64)


def _linear(distance: Array, _: float) -> Array:
    weights: Array = np.maximum(0, 1 - distance)
    return weights


def _cubic(distance: Array, a: float) -> Array:
    d = distance
    inner: Array = (a + 2) * d**3 - (a + 3) * d**2 + 1
    outer = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, inner, np.where(d < 2, outer, 0))


def _along(g: Graph, x: str, axis: int, weights: Array, dtype: Any) -> str:
    rank = len(g.shape(x))
    taps = int((weights != 0).sum(1).max(initial=1))
    if taps > _MOST_TAPS:
        order = [a for a in range(rank) if a != axis] + [axis]
        turned = g.op("Transpose", x, perm=order)
        product = g.op("MatMul", turned, g.const(weights.T, dtype))
        return g.op("Transpose", product, perm=list(np.argsort(order).tolist()))
    places = np.argsort(weights == 0, axis=1, kind="stable")[:, :taps]
    total = ""
    for tap in range(taps):
        factors = np.take_along_axis(weights, places[:, tap : tap + 1], 1)[:, 0]
        part = g.op("Gather", x, g.const(places[:, tap], np.int64), axis=axis)
        if np.any(factors != 1):
            aside = [1] * rank
            aside[axis] = -1
            part = g.op("Mul", part, g.const(factors.reshape(aside), dtype))
        total = g.op("Add", total, part) if total else part
    return total


RULES: dict[Any, Any] = {("", "Resize"): resize, ("", "Upsample"): resize}
