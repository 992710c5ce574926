"""How a search divides its effort between the sketches of a task."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tensorese.search.contracts import TaskState

FLOOR = 0.3  # of the effort is divided evenly, whatever was measured: a sketch may yet surprise
SHARPNESS = 2.0


def sketch_shares(state: TaskState) -> npt.NDArray[np.float64]:
    """One share per sketch, summing to 1: even at first, then by each sketch's best latency.

    A sketch whose best is twice as slow as the task's best gets a quarter of its share; one that
    was never measured counts as the best.
    """
    best = np.full(len(state.space.sketches), np.nan)
    for measurement in state.measurements:
        place = state.place(measurement.program)
        if place is not None and measurement.latency > 0:
            best[place[0]] = np.fmin(best[place[0]], measurement.latency)
    if np.isnan(best).all():
        return np.full(len(best), 1.0 / len(best))
    ratio = np.nan_to_num(np.nanmin(best) / best, nan=1.0) ** SHARPNESS
    shares: npt.NDArray[np.float64] = (1 - FLOOR) * ratio / ratio.sum() + FLOOR / len(best)
    return shares


def split(n: int, shares: npt.NDArray[np.float64]) -> list[int]:
    """`n` divided by the shares into whole numbers that sum to `n`; the largest remainders win."""
    exact = n * shares
    whole = np.floor(exact + 1e-9).astype(np.int64)
    missing = n - int(whole.sum())
    for index in np.argsort(-(exact - whole), kind="stable")[:missing]:
        whole[index] += 1
    return [int(count) for count in whole]
