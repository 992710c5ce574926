"""Which decision is which level of which tile, in both dialects."""

from __future__ import annotations

import json

import pytest

from tensorese.features.tiling import Axis, Group, read_tiling
from tensorese.language.ansor import split_steps
from tensorese.language.metaschedule import split_trace

pytestmark = pytest.mark.null

MATMUL = [
    ["CHW", 2, "local"],
    ["SP", 2, 0, 64, [1, 4, 2, 2], 1],
    ["SP", 2, 5, 32, [1, 8, 1, 1], 1],
    ["SP", 2, 10, 16, [4, 2], 1],
    ["RE", 2, [0, 5, 1, 6, 2, 7, 10, 11, 3, 8, 12, 4, 9]],
    ["FSP", 3, 0, 1, 3],
    ["FSP", 3, 4, 2, 3],
    ["RE", 3, [0, 4, 1, 5, 2, 6, 3, 7]],
    ["CA", 2, 3, 5],
    ["CHR", 1, "shared", [2]],
    ["CA", 2, 3, 6],
    ["CHR", 0, "shared", [3]],
    ["CA", 1, 4, 6],
    ["FU", 5, [0, 1]],
    ["AN", 5, 0, 5],
    ["FU", 5, [1, 2]],
    ["AN", 5, 1, 4],
    ["FU", 5, [2, 3]],
    ["AN", 5, 2, 6],
    ["FU", 3, [0, 1]],
    ["SP", 3, 0, 99, [2], 1],
    ["AN", 3, 1, 2],
    ["FU", 1, [0, 1]],
    ["SP", 1, 0, 77, [4], 1],
    ["AN", 1, 1, 2],
    ["PR", 4, 0, "auto_unroll_max_step$16"],
]


def test_ansor_matmul() -> None:
    body, slots, decisions = split_steps(MATMUL)
    tiling = read_tiling("ansor", body, slots)
    assert tiling.spatial == (Axis(64, (0, 1, 2, 3)), Axis(32, (4, 5, 6, 7)))
    assert tiling.reduction == (Axis(16, (8, 9)),)
    assert [decisions[k] for k in tiling.vectors] == [4, 2]  # the first operand's cache last
    assert tiling.unroll is not None
    assert decisions[tiling.unroll] == 16
    assert tiling.on_gpu


def test_ansor_fused_loop() -> None:
    body, slots, decisions = split_steps(
        [["FU", 1, [0, 1]], ["SP", 1, 0, 4096, [64], 1], ["AN", 1, 0, 5], ["AN", 1, 1, 6]]
    )
    tiling = read_tiling("ansor", body, slots)
    assert tiling.groups == (Group(1, None),)
    assert decisions[1] == 64
    assert not tiling.spatial


TRACE = [
    [
        ["GetBlock", [], ["matmul", "main"], ["b0"]],
        ["GetLoops", ["b0"], [], ["l1", "l2"]],
        ["SamplePerfectTile", ["l1"], [5, 64], ["v1", "v2", "v3", "v4", "v5"]],
        ["SamplePerfectTile", ["l2"], [3, 64], ["v6", "v7", "v8"]],
        ["CacheRead", ["b0", ["b0"]], [0, "shared"], ["b1"]],
        ["SampleCategorical", [], [[1, 2, 3, 4], [0.25, 0.25, 0.25, 0.25]], ["v9"]],
        ["Annotate", ["b1", "v9"], ["meta_schedule.cooperative_fetch"], []],
        ["SampleCategorical", [], [[0, 16, 64], [0.3, 0.3, 0.4]], ["v10"]],
        ["Annotate", ["b0", "v10"], ["meta_schedule.unroll_explicit"], []],
        ["SampleCategorical", [], [[32, 64], [0.5, 0.5]], ["v11"]],
        ["Split", ["l9", "None", "v11"], [1], ["l10", "l11"]],
    ],
    [[2, [4, 1, 8, 1, 2]], [3, [2, 2, 2]], [5, 3], [7, 1], [9, 0]],
]


def test_trace() -> None:
    body, slots, decisions, _ = split_trace(json.loads(json.dumps(TRACE)))
    tiling = read_tiling("metaschedule", body, slots)
    assert tiling.spatial == (Axis(None, (0, 1, 2, 3, 4)),)
    assert tiling.reduction == (Axis(None, (5, 6, 7)),)
    assert (tiling.vectors, tiling.unroll, tiling.groups) == ((8,), 9, (Group(10, None),))
    assert decisions[8:] == (3, 1, 0)


def test_nothing_to_tell() -> None:
    body, slots, _ = split_steps([["CI", 1]])
    tiling = read_tiling("ansor", body, slots)
    assert not tiling.spatial
    assert not tiling.groups
    assert tiling.unroll is None
