"""How good a ranking is, task by task. Higher scores should mean lower latency.

Top-k compares the best latency of a task with the best among the k programs the model likes
most; `networks.py` pools tasks as TLP's paper does. Ties are broken at random with a fixed seed:
a constant model scores like random order, not like the order of the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Floats64

KS = (1, 5, 10, 20)


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """One task: best latency, best among the top k, and what random order would give."""

    task: str
    n: int
    best: float
    chosen: Mapping[int, float]
    """Best latency among the k highest scored, by k."""
    pairwise: float
    steady: float
    """Mean of best / latency over the five highest scored: top-1 with less luck in it."""
    random: Mapping[int, float]
    """Expected top-k ratio of a random order, exact."""
    random_chosen: Mapping[int, float]
    """Expected best latency among the first k of a random order, exact."""

    def ratio(self, k: int) -> float:
        return self.best / self.chosen[k]

    @property
    def regret(self) -> float:
        """How much slower the first choice is than the best: 0 is perfect."""
        return self.chosen[1] / self.best - 1.0


def judge(task: str, scores: npt.ArrayLike, latency: npt.ArrayLike) -> TaskResult:
    """Judges one task; both arrays hold its valid programs only."""
    y = np.asarray(latency, dtype=np.float64)
    s = np.asarray(scores, dtype=np.float64)
    if len(y) != len(s) or not len(y):
        raise ValueError(f"scores and latencies must pair up, got {len(s)} and {len(y)}")
    noise = np.random.default_rng(0).random(len(y))
    order = np.lexsort((noise, -s))
    return TaskResult(
        task=task,
        n=len(y),
        best=float(y.min()),
        chosen={k: float(y[order[:k]].min()) for k in KS},
        pairwise=pairwise_accuracy(s, y),
        steady=float((y.min() / y[order[:5]]).mean()),
        random={k: random_top_k(y, k) for k in KS},
        random_chosen={k: random_best(y, k) for k in KS},
    )


def pairwise_accuracy(scores: Floats64, latency: Floats64, limit: int = 2000) -> float:
    """Share of pairs with different latency that are ordered right; a tied score is half right."""
    if len(latency) > limit:
        keep = np.random.default_rng(0).choice(len(latency), limit, replace=False)
        scores, latency = scores[keep], latency[keep]
    faster = latency[:, None] < latency[None, :]
    total = int(faster.sum())
    if not total:
        return 0.5
    ahead = np.sign(scores[:, None] - scores[None, :])
    return float(((ahead + 1.0) / 2.0)[faster].sum() / total)


@lru_cache(maxsize=1024)
def _first_chosen(n: int, k: int) -> Floats64:
    """P(the best of k drawn from n without replacement is the i-th best)."""
    # C(n-1-i, k-1) / C(n, k), on a log scale.
    ways = [
        math.lgamma(n - i) - math.lgamma(k) - math.lgamma(n - i - k + 1) for i in range(n - k + 1)
    ]
    total = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    chances: Floats64 = np.exp(np.array(ways) - total)
    return chances


def random_top_k(latency: Floats64, k: int) -> float:
    """E[min latency / best of k drawn without replacement], from order statistics."""
    y = np.sort(latency)
    chances = _first_chosen(len(y), min(k, len(y)))
    return float((chances * (y[0] / y[: len(chances)])).sum())


def random_best(latency: Floats64, k: int) -> float:
    """E[best latency of k drawn without replacement]."""
    y = np.sort(latency)
    chances = _first_chosen(len(y), min(k, len(y)))
    return float((chances * y[: len(chances)]).sum())


def mean_top_k(results: Iterable[TaskResult], k: int) -> float:
    return float(np.mean([result.ratio(k) for result in results]))


@dataclass(frozen=True, kw_only=True)
class Interval:
    mean: float
    low: float
    high: float


def bootstrap(values: Sequence[float], *, draws: int = 10_000, seed: int = 0) -> Interval:
    """95 % interval of the mean, tasks drawn with replacement.

    Given differences of two systems on the same tasks, this is the paired bootstrap.
    """
    data = np.asarray(values, dtype=np.float64)
    picks = np.random.default_rng(seed).integers(0, len(data), (draws, len(data)))
    low, high = np.quantile(data[picks].mean(1), [0.025, 0.975])
    return Interval(mean=float(data.mean()), low=float(low), high=float(high))


def summary(results: Sequence[TaskResult]) -> dict[str, float | int]:
    """Means over tasks, for cards and `--json`."""
    out: dict[str, float | int] = {}
    for k in (1, 5, 10):
        out[f"top{k}"] = mean_top_k(results, k)
    interval = bootstrap([result.ratio(1) for result in results])
    out["top1_low"], out["top1_high"] = interval.low, interval.high
    out["pairwise"] = float(np.mean([result.pairwise for result in results]))
    out["regret"] = float(np.mean([result.regret for result in results]))
    out["tasks"] = len(results)
    for k in (1, 5, 10):
        out[f"random_top{k}"] = float(np.mean([result.random[k] for result in results]))
    return out
