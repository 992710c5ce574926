"""What both systems of the comparison tune: eight subgraphs, and tasks of the test networks.

Weights are free for re-layout on both sides, as they are when a network is compiled for a CPU.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tensorese.tvm_env import import_tvm


@dataclass(frozen=True, kw_only=True)
class Subgraph:
    name: str
    source: str
    make: Callable[[Any], tuple[list[Any], list[int]]]
    """From `tvm` to the arguments of a PrimFunc and the places of its weights."""

    def module(self) -> Any:
        tvm = import_tvm()
        arguments, weights = self.make(tvm)
        function = tvm.te.create_prim_func(arguments)
        if weights:
            function = function.with_attr("layout_free_buffers", weights)
        return tvm.IRModule({"main": function})


def _padded(tvm: Any, x: Any, pad: int) -> Any:
    if not pad:
        return x
    n, h, w, c = (int(extent) for extent in x.shape)

    def value(b: Any, i: Any, j: Any, k: Any) -> Any:
        inside = tvm.tirx.all(i >= pad, i < h + pad, j >= pad, j < w + pad)
        return tvm.tirx.if_then_else(inside, x[b, i - pad, j - pad, k], 0.0)

    return tvm.te.compute((n, h + 2 * pad, w + 2 * pad, c), value, name="pad")


def _conv(
    tvm: Any, size: int, inputs: int, outputs: int, kernel: int, groups: int = 1
) -> tuple[Any, Any, Any]:
    """NHWC, stride 1, same padding; the weight is HWIO."""
    te = tvm.te
    x = te.placeholder((1, size, size, inputs), name="x")
    per_group, made = inputs // groups, outputs // groups
    w = te.placeholder((kernel, kernel, per_group, outputs), name="w")
    padded = _padded(tvm, x, kernel // 2)
    ry, rx = (te.reduce_axis((0, kernel), name=n) for n in ("ry", "rx"))
    rc = te.reduce_axis((0, per_group), name="rc")

    def value(n: Any, i: Any, j: Any, k: Any) -> Any:
        channel = rc if groups == 1 else k // made * per_group + rc
        product = padded[n, i + ry, j + rx, channel] * w[ry, rx, rc, k]
        return te.sum(product, axis=[ry, rx, rc])

    y = te.compute((1, size, size, outputs), value, name="conv2d")
    return x, w, y


def _conv_bn_relu(tvm: Any) -> tuple[list[Any], list[int]]:
    te = tvm.te
    x, w, y = _conv(tvm, 28, 128, 128, 3)
    scale, shift = (te.placeholder((128,), name=n) for n in ("scale", "shift"))
    shape = tuple(int(extent) for extent in y.shape)
    normed = te.compute(
        shape, lambda n, i, j, k: y[n, i, j, k] * scale[k] + shift[k], name="batch_norm"
    )
    out = te.compute(shape, lambda *at: te.max(normed[at], 0.0), name="relu")
    return [x, w, scale, shift, out], [1]


def _depthwise(tvm: Any) -> tuple[list[Any], list[int]]:
    te = tvm.te
    x = te.placeholder((1, 56, 56, 144), name="x")
    w = te.placeholder((3, 3, 144), name="w")
    padded = _padded(tvm, x, 1)
    ry, rx = (te.reduce_axis((0, 3), name=n) for n in ("ry", "rx"))

    def value(n: Any, i: Any, j: Any, k: Any) -> Any:
        return te.sum(padded[n, i + ry, j + rx, k] * w[ry, rx, k], axis=[ry, rx])

    return [x, w, te.compute((1, 56, 56, 144), value, name="depthwise")], [1]


def _matmul(tvm: Any) -> tuple[list[Any], list[int]]:
    te = tvm.te
    x, w = te.placeholder((128, 768), name="x"), te.placeholder((768, 3072), name="w")
    r = te.reduce_axis((0, 768), name="r")
    y = te.compute((128, 3072), lambda i, j: te.sum(x[i, r] * w[r, j], axis=r), name="matmul")
    return [x, w, y], [1]


def _batch_matmul(tvm: Any) -> tuple[list[Any], list[int]]:
    te = tvm.te
    x, y = te.placeholder((12, 128, 64), name="x"), te.placeholder((12, 64, 128), name="y")
    r = te.reduce_axis((0, 64), name="r")
    z = te.compute(
        (12, 128, 128), lambda b, i, j: te.sum(x[b, i, r] * y[b, r, j], axis=r), name="matmul"
    )
    return [x, y, z], []


def _softmax(tvm: Any) -> tuple[list[Any], list[int]]:
    te = tvm.te
    x = te.placeholder((1536, 128), name="x")
    r, s = (te.reduce_axis((0, 128), name=n) for n in ("r", "s"))
    top = te.compute((1536,), lambda i: te.max(x[i, r], axis=r), name="top")
    exp = te.compute((1536, 128), lambda i, j: te.exp(x[i, j] - top[i]), name="exp")
    total = te.compute((1536,), lambda i: te.sum(exp[i, s], axis=s), name="total")
    out = te.compute((1536, 128), lambda i, j: exp[i, j] / total[i], name="softmax")
    return [x, out], []


SUBGRAPHS = {
    graph.name: graph
    for graph in (
        Subgraph(
            name="conv2d_3x3",
            source="ResNet, 56x56, 64 to 64",
            make=lambda tvm: (list(_conv(tvm, 56, 64, 64, 3)), [1]),
        ),
        Subgraph(
            name="conv2d_1x1",
            source="ResNet-50, 14x14, 1024 to 256",
            make=lambda tvm: (list(_conv(tvm, 14, 1024, 256, 1)), [1]),
        ),
        Subgraph(
            name="grouped",
            source="ResNeXt-50, 28x28, 256 channels in 32 groups",
            make=lambda tvm: (list(_conv(tvm, 28, 256, 256, 3, groups=32)), [1]),
        ),
        Subgraph(name="depthwise", source="MobileNet-V2, 56x56, 144 channels", make=_depthwise),
        Subgraph(name="matmul", source="BERT-base, 128x768 times 768x3072", make=_matmul),
        Subgraph(name="batch_matmul", source="BERT-base, 12 heads, 128x64x128", make=_batch_matmul),
        Subgraph(
            name="conv_bn_relu",
            source="ResNet, 28x28, 128 to 128, with scale, shift and relu",
            make=_conv_bn_relu,
        ),
        Subgraph(name="softmax", source="BERT-base, 12 heads of 128x128", make=_softmax),
    )
}


@dataclass(frozen=True, kw_only=True)
class TestTask:
    """A task of a network that no shipped model was trained on."""

    name: str
    source: str
    workload: str

    def module(self) -> Any:
        return import_tvm().ir.load_json(listed_modules()[self.workload])


def test_tasks(kind: str) -> dict[str, TestTask]:
    """Those of the list that was committed before any model was trained."""
    listed = json.loads(Path(__file__).with_name("test_tasks.json").read_text())[kind]
    tasks = [
        TestTask(
            name=f"{entry['class']}-{entry['workload'][:4]}",
            source=f"{entry['network']}: {entry['shape']}",
            workload=entry["workload"],
        )
        for entry in listed
    ]
    return {task.name: task for task in tasks}


@cache
def listed_modules() -> dict[str, str]:
    from tensorese.collect.tasklist import read_tasks

    path = Path(__file__).parents[1] / "data" / "tasks.parquet"
    return {task.workload.id: task.workload.module for task in read_tasks(path)}
