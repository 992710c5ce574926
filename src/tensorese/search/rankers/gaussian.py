"""A Gaussian process for tens of points in tens of dimensions: exact, numpy alone, milliseconds."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from tensorese.arrays import Floats64
from tensorese.search.rankers.blas import one_thread

LENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0)
LINEAR = (0.0, 0.3, 1.0)
NOISES = (0.01, 0.03, 0.1, 0.3)
CHUNK = 64  # points: the evidence of many is summed over chunks, so that it grows linearly


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Of the kernel: Matern 5/2 of this length plus a linear part; noise relative to both."""

    length: float = 2.0
    linear: float = 0.3
    noise: float = 0.1


def kernel(a: Floats64, b: Floats64, shape: Shape) -> Floats64:
    inner = a @ b.T
    square = (a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2 * inner
    root = np.sqrt(np.maximum(square, 0.0)) * (math.sqrt(5.0) / shape.length)
    matern: Floats64 = (1.0 + root + root**2 / 3.0) * np.exp(-root)
    return matern + shape.linear * inner


class GaussianProcess:
    """Fitted when made. Inputs are standardised here; `shape` is chosen by evidence when None."""

    def __init__(
        self,
        x: Floats64,
        y: Floats64,
        *,
        emphasis: Floats64 | None = None,
        mean: float | None = None,
        shape: Shape | None = None,
    ) -> None:
        self._centre = x.mean(0)
        spread = x.std(0)
        open_ = spread > 1e-9  # a column that never changed teaches nothing
        # Divided by the root of their number, features lie about 1 apart however many they are.
        scale = 1.0 / math.sqrt(max(1, int(open_.sum())))
        self._weight = np.where(open_, scale / np.where(open_, spread, 1.0), 0.0)
        if emphasis is not None:
            self._weight = self._weight * emphasis
        self._points = self._place(x)
        self.mean = float(y.mean()) if mean is None else mean
        self.scale = max(float(np.sqrt(np.mean((y - self.mean) ** 2))), 1e-6)
        target = (y - self.mean) / self.scale
        with one_thread():
            self.shape = shape or _likeliest(self._points, target)
            self._fit(target)

    def _place(self, x: Floats64) -> Floats64:
        placed: Floats64 = (x - self._centre) * self._weight
        return placed

    def _fit(self, target: Floats64) -> None:
        noise = self.shape.noise * np.eye(len(target))
        factor = np.linalg.cholesky(kernel(self._points, self._points, self.shape) + noise)
        self._whiten = np.linalg.inv(factor).T
        turned = self._whiten.T @ target
        self._alpha = self._whiten @ turned
        self._signal = float(np.mean(turned**2))

    def predict(self, x: Floats64) -> tuple[Floats64, Floats64]:
        """Mean and standard deviation of the noiseless value."""
        with one_thread():
            points = self._place(x)
            crossed = kernel(points, self._points, self.shape)
            explained = ((crossed @ self._whiten) ** 2).sum(1)
            mean = self.mean + self.scale * (crossed @ self._alpha)
        prior = 1.0 + self.shape.linear * (points**2).sum(1)
        variance = self._signal * np.maximum(prior - explained, 0.0)
        return mean, self.scale * np.sqrt(variance)


def _likeliest(points: Floats64, target: Floats64) -> Shape:
    """Of a grid of shapes the one with most evidence."""
    pieces = -(-len(target) // CHUNK)
    chunks = [(points[k::pieces], target[k::pieces]) for k in range(pieces)]
    best, likeliest = -math.inf, Shape()
    for length, linear in itertools.product(LENGTHS, LINEAR):
        shape = Shape(length=length, linear=linear)
        kernels = [kernel(here, here, shape) for here, _ in chunks]
        for noise in NOISES:
            parts = zip(kernels, chunks, strict=True)
            evidence = sum(_evidence(matrix, aim, noise) for matrix, (_, aim) in parts)
            if evidence > best:
                best, likeliest = evidence, Shape(length=length, linear=linear, noise=noise)
    return likeliest


def _evidence(matrix: Floats64, target: Floats64, noise: float) -> float:
    """Log likelihood up to a constant, the scale of the signal profiled out."""
    factor = np.linalg.cholesky(matrix + noise * np.eye(len(target)))
    turned = np.linalg.solve(factor, target)
    fit = math.log(max(float(np.mean(turned**2)), 1e-12))
    return -0.5 * len(target) * fit - float(np.log(np.diag(factor)).sum())
