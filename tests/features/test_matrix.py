from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tensorese.features.matrix import (
    Context,
    Encoder,
    MatrixSpec,
    fit_spec,
    lane_fill,
    paper_one_hot,
    paper_spec,
    signed_log2,
)
from tensorese.language import Vocabulary, skeleton, split_steps, split_trace
from tensorese.language.skeleton import Slots, read_sentence
from tensorese.language.vocabulary import UNKNOWN

pytestmark = pytest.mark.null

STEPS: list[list[Any]] = [
    ["CHW", 2, "local"],
    ["SP", 2, 0, 64, [2, 8, 1, 4], 1],
    ["SP", 2, 5, 32, [4, 2, 1, 1], 1],
    ["SP", 2, 10, 128, [4, 2], 1],
    ["RE", 2, [0, 5, 1, 6, 2, 7, 10, 11, 3, 8, 12, 4, 9]],
    ["FSP", 3, 0, 1, 3],
    ["FSP", 3, 4, 2, 3],
    ["RE", 3, [0, 4, 1, 5, 2, 6, 3, 7]],
    ["CA", 2, 3, 5],
    ["FU", 3, [0, 1]],
    ["AN", 3, 0, 5],
    ["FU", 3, [1, 2]],
    ["AN", 3, 1, 4],
    ["FU", 3, [2, 3]],
    ["AN", 3, 2, 6],
    ["PR", 2, 0, "auto_unroll_max_step$64"],
]


def _trace(block: str = "matmul") -> list[Any]:
    return [
        [
            ["GetBlock", [], [block, "main"], ["b0"]],
            ["GetLoops", ["b0"], [], ["l1", "l2"]],
            ["SamplePerfectTile", ["l1"], [2, 64], ["v3", "v4"]],
            ["Split", ["l1", "v3", "v4"], [1], ["l5", "l6"]],
            ["SampleCategorical", [], [[32, 64, 128], [0.3, 0.3, 0.4]], ["v7"]],
            ["Split", ["l2", "None", "v7"], [1], ["l8", "l9"]],
            ["Bind", ["l9"], ["threadIdx.x"], []],
            ["Fuse", ["l5", "l6"], [1], ["l10"]],
            ["Bind", ["l10"], ["blockIdx.x"], []],
        ],
        [[2, [16, 4]], [4, 1]],
    ]


def _naive(dialect: str, body: str, slots: Slots, decisions: Any, spec: MatrixSpec) -> Any:
    """Numbers of every row read one by one, without templates; implied extents left out."""
    out = np.zeros((spec.length, spec.numbers - 2))
    for k, primitive in enumerate(read_sentence(dialect, body, slots, decisions)):
        numbers = [arg for arg in primitive.args if not isinstance(arg, str)]
        out[k + spec.context, : len(numbers)] = signed_log2(numbers)
    return out


def test_template_equals_reading_each_program() -> None:
    for dialect, (body, slots, decisions) in {
        "ansor": split_steps(STEPS),
        "metaschedule": split_trace(_trace())[:3],
    }.items():
        bones = skeleton(dialect, body, slots)
        spec = fit_spec([bones])
        template = Encoder(spec).encode(bones)
        other = tuple(d // 2 for d in decisions)
        matrix = template.matrix([decisions, other])
        for got, asked in zip(matrix, (decisions, other), strict=True):
            want = _naive(dialect, body, slots, asked, spec)
            np.testing.assert_allclose(got[:, 1 + spec.names + 2 :], want, atol=1e-5)


def test_a_categorical_shows_its_choice_where_it_is_used() -> None:
    body, slots, _, _ = split_trace(_trace())
    bones = skeleton("metaschedule", body, slots)
    spec = fit_spec([bones], context=False)
    template = Encoder(spec).encode(bones)
    matrix = template.matrix([[16, 4, 0], [16, 4, 2]])
    implied = 1 + spec.names  # first number column
    np.testing.assert_allclose(np.exp2(matrix[:, 6, implied]) - 1, [32, 128], rtol=1e-5)


def test_implied_extents_are_products_of_tiles() -> None:
    body, slots, decisions = split_steps(STEPS)
    bones = skeleton("ansor", body, slots)
    spec = fit_spec([bones], context=False)
    matrix = Encoder(spec).encode(bones).matrix([decisions])[0]
    extents = np.exp2(matrix[:, 1 + spec.names]) - 1
    blocks, vthreads, threads = extents[[10, 12, 14]]
    assert (round(blocks), round(vthreads), round(threads)) == (4, 8, 16)
    assert round(extents[1]) == 1  # 64 / (2*8*1*4)
    np.testing.assert_allclose(matrix[[10, 14], 2 + spec.names], [4 * 4 / 32, 4 * 16 / 32])


def test_lane_fill() -> None:
    np.testing.assert_allclose(lane_fill(np.log2([1, 32, 33, 64, 96])), [0.125, 4, 2.0625, 4, 4])


def test_unknown_primitive_and_string_never_shift_a_column() -> None:
    strange = [["ZAP", 1, "warpgroup", 7], *STEPS]
    encoder = Encoder(MatrixSpec(length=20, names=1, numbers=16, context=False))
    known = encoder.template("ansor", *split_steps(STEPS)[:2])
    shifted = encoder.template("ansor", *split_steps(strange)[:2])
    assert shifted.types[0] == UNKNOWN
    np.testing.assert_array_equal(shifted.types[1:17], known.types[:16])
    np.testing.assert_array_equal(shifted.numbers[1:17], known.numbers[:16])
    assert encoder.vocabulary.strangers == {"type:ZAP": 1, "name:warpgroup": 1}


def test_renaming_blocks_and_variables_changes_nothing() -> None:
    renamed = json.loads(
        json.dumps(_trace("my_own_name")).replace('"l', '"lx').replace('"v', '"vx')
    )
    results = []
    for trace in (_trace(), renamed):
        body, slots, decisions, _ = split_trace(trace)
        results.append(
            Encoder(MatrixSpec()).template("metaschedule", body, slots).matrix([decisions])
        )
    np.testing.assert_array_equal(*results)


def test_paper_preset_sizes_and_one_hot() -> None:
    body, slots, decisions = split_steps(STEPS)
    for kind, shape in {"cpu": (25, 22), "gpu": (40, 20)}.items():
        matrix = Encoder(paper_spec(kind)).template("ansor", body, slots).matrix([decisions])
        hot = paper_one_hot(matrix, kind)
        assert hot.shape == (1, *shape)
    np.testing.assert_array_equal(hot[0, 1, :11], np.eye(11)[6])  # SP is the seventh GPU type
    np.testing.assert_array_equal(hot[0, 1, 11:19], [2, 0, 64, 2, 8, 1, 4, 1])  # raw, in order


def test_crop_cuts_rows_and_columns_only() -> None:
    body, slots, decisions = split_steps(STEPS)
    full = Encoder(MatrixSpec(length=30, numbers=20)).template("ansor", body, slots)
    small = Encoder(MatrixSpec(length=8, numbers=5)).template("ansor", body, slots)
    want = full.matrix([decisions])[:, :8, : 1 + 2 + 5]
    np.testing.assert_array_equal(small.matrix([decisions]), want)
    assert small.n_rows == 8


def test_mask_marks_real_rows() -> None:
    body, slots, _ = split_steps(STEPS)
    template = Encoder(MatrixSpec(length=30)).template("ansor", body, slots)
    assert template.mask.sum() == len(STEPS) + 1


def test_context_row_holds_sizes_and_element_types() -> None:
    body, slots, decisions = split_steps(STEPS)
    encoder = Encoder(MatrixSpec())
    template = encoder.template("ansor", body, slots, Context(("float16",), (64, 32)))
    row = template.matrix([decisions])[0, 0]
    assert row[1] == Vocabulary().name_id("workload", "float16")
    np.testing.assert_allclose(row[5:7], signed_log2([64, 32]), rtol=1e-6)


def test_signed_log2_keeps_sign_and_zero() -> None:
    np.testing.assert_allclose(signed_log2([-3, 0, 1, 7]), [-2, 0, 1, 3])


def test_sketch_without_decisions() -> None:
    body, slots, decisions = split_steps([["CI", 1], ["AN", 2, 0, 3]])
    matrix = Encoder(MatrixSpec()).template("ansor", body, slots).matrix([decisions, decisions])
    assert matrix.shape[0] == 2
    np.testing.assert_array_equal(matrix[0], matrix[1])
