"""Which programs are worth measuring on a platform nobody knows: promising, doubtful, diverse."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Floats64, Ints

PROMISING = 0.4
"""Share of the probes that are the model's own favourites: its first picks must be right."""


def choose_probes(
    features: npt.ArrayLike, speeds: npt.ArrayLike, n: int, known: npt.ArrayLike | None = None
) -> Ints:
    """Indices of up to `n` rows of one task, in the order they should be measured.

    `speeds` is `[rows, networks]`: log2 of speed as each network sees it. Each pick is as far as
    can be from what was picked (or is `known`, `[k, features]`), farther counting more where the
    networks disagree; favourites are picked in between, apart from each other.
    """
    x = _standardised(features, known)
    predicted = np.asarray(speeds, dtype=np.float64)
    n = min(n, len(predicted))
    doubt = 1.0 + predicted.std(1) / max(float(predicted.std(1).mean()), 1e-9)
    mean = predicted.mean(1)
    gap = np.full(len(predicted), np.inf)
    if known is not None and len(np.asarray(known)):
        gap = _gaps(x[: len(predicted)], x[len(predicted) :])
    x = x[: len(predicted)]
    taken = np.zeros(len(predicted), dtype=bool)
    picked: list[int] = []
    favourites = 0
    while len(picked) < n:
        wants_favourite = favourites < PROMISING * (len(picked) + 1)
        worth = mean if wants_favourite else np.where(np.isinf(gap), 1e6, gap) * doubt
        # A favourite that is as good as measured already adds nothing.
        worth = np.where(taken | (wants_favourite & (gap < 1e-9)), -np.inf, worth)
        best = int(np.argmax(worth))
        if not np.isfinite(worth[best]):
            worth = np.where(taken, -np.inf, mean)
            best = int(np.argmax(worth))
        favourites += int(wants_favourite)
        taken[best] = True
        picked.append(best)
        gap = np.minimum(gap, np.sqrt(((x - x[best]) ** 2).mean(1)))
    return np.array(picked, dtype=np.int64)


def _standardised(features: npt.ArrayLike, known: npt.ArrayLike | None) -> Floats64:
    x = np.asarray(features, dtype=np.float64)
    if known is not None and len(np.asarray(known)):
        x = np.vstack([x, np.asarray(known, dtype=np.float64)])
    spread = x.std(0)
    return np.asarray((x - x.mean(0)) / np.where(spread > 1e-9, spread, np.inf))


def _gaps(rows: Floats64, others: Floats64) -> Floats64:
    square = (rows**2).mean(1)[:, None] + (others**2).mean(1)[None]
    square = square - 2 * rows @ others.T / rows.shape[1]
    return np.asarray(np.sqrt(np.maximum(square, 0.0)).min(1))


def spread_tasks(classes: list[str], n: int) -> list[int]:
    """Up to `n` places of a list of classes: the classes in turn, each from its start."""
    left: dict[str, list[int]] = {}
    for place, name in enumerate(classes):
        left.setdefault(name, []).append(place)
    chosen: list[int] = []
    while len(chosen) < n and any(left.values()):
        for places in left.values():
            if places and len(chosen) < n:
                chosen.append(places.pop(0))
    return sorted(chosen)
