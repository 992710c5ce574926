"""Uniform random search: what every other proposer has to beat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorese.records.nouns import Measurement
from tensorese.search.contracts import Proposal, Proposer, TaskState
from tensorese.search.proposers.random_rows import random_proposals


class RandomSearch(Proposer):
    """New legal rows, sketches in equal shares, uniform over factorisations."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def propose(self, states: Sequence[TaskState], n: int) -> list[list[Proposal]]:
        return [self._propose(state, n) for state in states]

    def _propose(self, state: TaskState, n: int) -> list[Proposal]:
        count = len(state.space.sketches)
        return random_proposals(state, n, np.full(count, 1.0 / count), state.rng(self.seed))

    def update(self, measurements: Sequence[Measurement]) -> None:
        """Chance learns nothing."""
