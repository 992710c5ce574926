"""The Gaussian process: exact where it can be checked by hand, fast enough to refit every batch."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tensorese.search.rankers.blas import one_thread
from tensorese.search.rankers.gaussian import GaussianProcess, Shape, kernel

pytestmark = pytest.mark.null


def _data(n: int, d: int = 20, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x, np.sin(x[:, 0]) + 0.5 * x[:, 1]


def test_prediction_is_the_textbook_formula() -> None:
    x, y = _data(12, 3)
    new = np.random.default_rng(1).normal(size=(5, 3))
    shape = Shape(length=1.5, linear=0.2, noise=0.05)
    model = GaussianProcess(x, y, shape=shape)
    scale = 1 / (x.std(0) * np.sqrt(3))
    a, b = (x - x.mean(0)) * scale, (new - x.mean(0)) * scale
    spread = np.sqrt(((y - y.mean()) ** 2).mean())
    target = (y - y.mean()) / spread
    inverse = np.linalg.inv(kernel(a, a, shape) + 0.05 * np.eye(12))
    crossed = kernel(b, a, shape)
    signal = target @ inverse @ target / 12
    variance = np.diag(kernel(b, b, shape) - crossed @ inverse @ crossed.T) * signal
    mean, deviation = model.predict(new)
    np.testing.assert_allclose(mean, y.mean() + spread * (crossed @ inverse @ target))
    np.testing.assert_allclose(deviation, spread * np.sqrt(variance))


def test_it_is_sure_where_it_has_been_and_unsure_elsewhere() -> None:
    x, y = _data(64)
    model = GaussianProcess(x, y)
    mean, deviation = model.predict(x)
    assert np.abs(mean - y).mean() < 0.3 * y.std()
    _, far = model.predict(x + 10)
    assert far.min() > deviation.max()


def test_columns_that_never_change_and_equal_labels_are_harmless() -> None:
    x = np.ones((6, 4))
    mean, deviation = GaussianProcess(x, np.full(6, 2.0)).predict(x)
    np.testing.assert_allclose(mean, 2.0, atol=1e-4)
    assert np.isfinite(deviation).all()
    one, spread = GaussianProcess(x[:1], np.array([3.0])).predict(x)
    np.testing.assert_allclose(one, 3.0, atol=1e-4)
    assert np.isfinite(spread).all()


def test_emphasis_says_what_counts() -> None:
    x = np.array([[0.0, 0.0], [1.0, 1.0]])
    y = np.array([0.0, 1.0])
    asked = np.array([[1.0, 0.0]])
    first = GaussianProcess(x, y, emphasis=np.array([5.0, 1.0]), shape=Shape()).predict(asked)[0]
    second = GaussianProcess(x, y, emphasis=np.array([1.0, 5.0]), shape=Shape()).predict(asked)[0]
    assert first[0] > 0.7 > 0.3 > second[0]


def test_64_labels_are_learnt_in_well_under_a_tenth_of_a_second() -> None:
    x, y = _data(64, 60)
    GaussianProcess(x, y)
    started = time.process_time()
    GaussianProcess(x, y)
    assert time.process_time() - started < 0.1


def test_blas_gets_its_threads_back() -> None:
    from tensorese.search.rankers.blas import _controls

    controls = _controls()
    if controls is None:
        pytest.skip("this numpy brings no OpenBLAS of its own")
    before = controls[0]()
    with one_thread():
        assert controls[0]() == 1
    assert controls[0]() == before
