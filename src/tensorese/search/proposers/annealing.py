"""Simulated annealing on integer rows: many chains at once, beside evolution as a comparator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tensorese.records.nouns import Measurement
from tensorese.search.contracts import Proposal, Proposer, Ranker, TaskState
from tensorese.search.proposers.pool import Scored, distinct, measured_best, pick, score
from tensorese.search.proposers.random_rows import draw, random_proposals
from tensorese.search.proposers.shares import sketch_shares, split
from tensorese.space.variation import mutate


@dataclass(frozen=True, kw_only=True)
class AnnealingConfig:
    chains: int = 128
    """Over all sketches; each is one row that walks."""
    steps: int = 15
    hot: float = 1.0
    """Temperature at the start, in standard deviations of the first scores; 0 at the end."""
    epsilon: float = 0.05
    apart: float = 1.5


class Annealing(Proposer):
    """Chains start at measured and drawn rows; the best of all they visited is proposed."""

    name = "annealing"

    def __init__(
        self, ranker: Ranker, config: AnnealingConfig | None = None, seed: int = 0
    ) -> None:
        self.ranker = ranker
        self.config = config or AnnealingConfig()
        self.seed = seed

    def propose(self, states: Sequence[TaskState], n: int) -> list[list[Proposal]]:
        return [self._propose(state, n, state.rng(self.seed)) for state in states]

    def update(self, measurements: Sequence[Measurement]) -> None:
        self.ranker.update(measurements)

    def _propose(self, state: TaskState, n: int, rng: np.random.Generator) -> list[Proposal]:
        shares = sketch_shares(state)
        counts = split(self.config.chains, shares)
        visited = [self._walk(state, sketch, count, rng) for sketch, count in enumerate(counts)]
        n_random = int(self.config.epsilon * n + rng.random())
        origin = f"{self.name}:{self.ranker.name}"
        picked = pick(state, visited, n - n_random, origin, apart=self.config.apart)
        return picked + random_proposals(state, n - len(picked), shares, rng, picked)

    def _walk(self, state: TaskState, sketch: int, chains: int, rng: np.random.Generator) -> Scored:
        """Every new row that the chains of one sketch came by."""
        best = measured_best(state, sketch, chains // 2)
        drawn = draw(state, sketch, chains - len(best), rng, computed=True)
        rows = np.vstack([best, drawn]) if len(drawn) else best
        scores = score(state, self.ranker, sketch, rows)
        seen_rows, seen_scores = [rows], [scores]
        space = state.computed(sketch)
        heat = self.config.hot * float(scores.std()) if len(scores) else 0.0
        for step in range(self.config.steps if space.covered and len(rows) else 0):
            moved = mutate(space, rows, rng, tries=3)
            new = score(state, self.ranker, sketch, moved)
            seen_rows.append(moved)
            seen_scores.append(new)
            warm = heat * (1 - step / self.config.steps) + 1e-9
            gain = np.minimum((new - scores) / warm, 0.0)
            accept = rng.random(len(rows)) < np.exp(gain)
            rows = np.where(accept[:, None], moved, rows)
            scores = np.where(accept, new, scores)
        visited, first = distinct(np.vstack(seen_rows))
        every = np.concatenate(seen_scores)[first]
        return Scored(sketch=sketch, rows=visited, scores=every).new_to(state)
