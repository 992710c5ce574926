from __future__ import annotations

import math

import numpy as np
import pytest

from tensorese.measure.reference.verdict import compare, seeded_inputs, tolerance
from tensorese.records.nouns import TensorSpec

pytestmark = pytest.mark.null


def spec(*shape: int, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(shape=shape, dtype=dtype)


def test_inputs_depend_on_seed_position_shape_and_dtype_only() -> None:
    first, second = seeded_inputs([spec(4, 5), spec(4, 5)], 7)
    again = seeded_inputs([spec(4, 5)], 7)[0]
    assert np.array_equal(first, again)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, seeded_inputs([spec(4, 5)], 8)[0])
    assert not np.array_equal(first.ravel(), seeded_inputs([spec(5, 4)], 7)[0].ravel())


def test_inputs_are_the_same_on_every_machine() -> None:
    values = seeded_inputs([spec(3)], 0)[0]
    assert values.tolist() == pytest.approx(PINNED, abs=0)


PINNED = [0.7612392902374268, -0.7140085697174072, -0.9217877984046936]


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [("float32", -1, 1), ("float16", -1, 1), ("int8", -8, 7), ("int64", 0, 3), ("uint8", 0, 3)],
)
def test_inputs_are_well_scaled(dtype: str, low: int, high: int) -> None:
    values = seeded_inputs([spec(1000, dtype=dtype)], 0)[0]
    assert str(values.dtype) == dtype
    assert values.min() >= low and values.max() <= high
    assert len(np.unique(values)) > (500 if "float" in dtype else 3)


def test_inputs_of_booleans_and_bfloat16() -> None:
    flags = seeded_inputs([spec(100, dtype="bool")], 0)[0]
    assert flags.dtype == bool and 20 < flags.sum() < 80
    pytest.importorskip("ml_dtypes")
    assert str(seeded_inputs([spec(8, dtype="bfloat16")], 0)[0].dtype) == "bfloat16"


def test_tolerance_grows_like_the_root_of_the_length() -> None:
    short, long = (tolerance("float32", n)[0] for n in (10_000, 1_000_000))
    assert 5 < long / short < 10
    assert tolerance("float16", 1)[0] > tolerance("float32", 1)[0] > tolerance("float64", 1)[0]
    assert tolerance("int32", 1000) == (0.0, 0.0)


@pytest.mark.parametrize("length", [16, 512, 8192])
def test_a_reordered_sum_passes_and_a_missing_step_fails(length: int) -> None:
    a, b = seeded_inputs([spec(64, length), spec(length, 48)], 1)
    want = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)
    backwards = np.zeros((64, 48), np.float32)
    for k in reversed(range(length)):
        backwards += a[:, k : k + 1] * b[k]
    rtol, atol = tolerance("float32", length)
    assert compare(backwards, want, rtol, atol).passed
    short = (a[:, :-1].astype(np.float64) @ b[:-1].astype(np.float64)).astype(np.float32)
    verdict = compare(short, want, rtol, atol)
    assert not verdict.passed
    assert verdict.first_bad is not None and "differ" in verdict.note


@pytest.mark.parametrize("length", [64, 512])
def test_half_sums_keep_a_tile_from_hiding(length: int) -> None:
    a, b = seeded_inputs([spec(64, length, dtype="float16"), spec(length, 48, dtype="float16")], 1)
    want = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float16)
    total = np.zeros((64, 48), np.float16)
    for k in range(length):
        total += a[:, k : k + 1] * b[k]
    rtol, atol = tolerance("float16", length)
    assert compare(total, want, rtol, atol).passed
    short = (a[:, :-8].astype(np.float64) @ b[:-8].astype(np.float64)).astype(np.float16)
    assert not compare(short, want, rtol, atol).passed


def test_one_wrong_element_is_named() -> None:
    want = np.ones((3, 4), np.float32)
    got = want.copy()
    got[1, 2] = 1.5
    verdict = compare(got, want, *tolerance("float32", 1))
    assert (verdict.passed, verdict.first_bad, verdict.max_abs_error) == (False, (1, 2), 0.5)
    assert verdict.max_rel_error == pytest.approx(0.25)


def test_nan_and_infinity() -> None:
    want = np.array([1.0, np.inf, np.nan], np.float32)
    assert compare(want.copy(), want, 0.1, 0.1).passed
    assert "reference itself" in compare(want.copy(), want, 0.1, 0.1).note
    for bad in ([np.nan, np.inf, np.nan], [1.0, -np.inf, np.nan], [1.0, 1e30, np.nan]):
        assert not compare(np.array(bad, np.float32), want, 0.1, 0.1).passed
    assert "NaN in 1 of 3" in compare(np.array([np.nan, np.inf, np.nan], "f4"), want, 1, 1).note


def test_integers_compare_exactly_whatever_the_tolerance() -> None:
    want = np.arange(6, dtype=np.int32)
    assert compare(want.copy(), want, 0.0, 0.0).passed
    assert compare(want + (want == 3), want, 10.0, 10.0).first_bad == (3,)
    large = np.array([2**62], np.int64)
    assert not compare(large + 1, large, 0.0, 0.0).passed


def test_another_shape_or_type_is_refused() -> None:
    want = np.zeros((2, 3), np.float32)
    for got in (np.zeros((3, 2), np.float32), np.zeros((2, 3), np.float64)):
        verdict = compare(got, want, 1.0, 1.0)
        assert not verdict.passed and verdict.note.startswith("expected float32(2, 3)")
        assert math.isinf(verdict.max_abs_error)
