"""Uniform random search: what every other proposer has to beat."""

from __future__ import annotations

import numpy as np

from tensorese.search.contracts import Proposal, Proposer, TaskState
from tensorese.search.proposers.random_rows import random_proposals


class RandomSearch(Proposer):
    """New legal rows, sketches in equal shares, uniform over factorisations."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)

    def propose(self, state: TaskState, n: int) -> list[Proposal]:
        count = len(state.space.sketches)
        return random_proposals(state, n, np.full(count, 1.0 / count), self.rng)
