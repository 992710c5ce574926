"""How outputs are compared."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tensorese.deploy.verdict import compare, difference, rival_limits, tolerance

pytestmark = pytest.mark.null


def test_tolerance_grows_with_depth_and_type() -> None:
    shallow = tolerance("float32", kernels=1, reduction=1)
    deep = tolerance("float32", kernels=100, reduction=4608)
    assert 0 < shallow < 1e-6 < deep < 1e-2
    assert tolerance("float16", kernels=100, reduction=4608) < 0.01
    assert tolerance("bfloat16", kernels=1, reduction=1) > shallow
    assert tolerance("int64", kernels=100, reduction=4608) == 0.0


def test_difference_is_a_share_of_the_largest_value() -> None:
    want = np.array([0.0, 10.0], np.float32)
    assert difference(np.array([0.1, 10.0], np.float32), want) == pytest.approx(0.01, rel=1e-4)
    assert difference(want, want) == 0.0
    assert difference(want[:1], want) == math.inf
    assert difference(np.array([1, 2]), np.array([1, 3])) == 1.0
    assert difference(np.zeros(0, np.float32), np.zeros(0, np.float32)) == 0.0


def test_infinities_must_be_in_the_same_places() -> None:
    want = np.array([np.nan, np.inf, 1.0], np.float32)
    assert difference(want.copy(), want) == 0.0
    assert difference(np.array([np.nan, 1.0, 1.0], np.float32), want) == math.inf
    assert difference(np.array([np.nan, np.inf, np.nan], np.float32), want) == math.inf


def test_the_worst_output_is_named() -> None:
    good, bad = np.ones(4, np.float32), np.zeros(4, np.float32)
    verdict = compare([good, bad], [good, good], [1e-6, 1e-6])
    assert not verdict.passed and "output 1 differs by 1 " in verdict.note
    assert compare([good], [good, good], [1e-6]).error == math.inf
    close = compare([good + 1e-4], [good], [1e-3])
    assert close.passed and close.error == pytest.approx(1e-4, rel=1e-2)


def test_small_probabilities_may_err_by_roundings_of_one_in_a_rival_only() -> None:
    want = np.array([0.0, 4e-6, 2e-6], dtype=np.float32)
    near = want + np.float32(2.0**-24)
    assert not compare([near], [want], [1e-5]).passed
    assert compare([near], [want], rival_limits([want], [1e-5])).passed
    assert rival_limits([np.float32([0.5, 0.9])], [1e-6]) == [1e-6]
    signed = np.array([-4e-6, 4e-6], dtype=np.float32)  # no probabilities
    assert rival_limits([signed, np.arange(2)], [1e-5, 0.0]) == [1e-5, 0.0]
