"""Evolution on integer rows: breed, score with any ranker, propose. Nothing is replayed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tensorese.arrays import Ints
from tensorese.errors import TensoreseError
from tensorese.records.nouns import Measurement
from tensorese.search.contracts import Proposal, Proposer, Ranker, TaskState
from tensorese.search.proposers.leaders import CHUNK, Leaders
from tensorese.search.proposers.pool import measured_best, pick, picked_from
from tensorese.search.proposers.random_rows import draw, random_proposals
from tensorese.search.proposers.shares import sketch_shares, split
from tensorese.space.decisions import DecisionSpace
from tensorese.space.variation import cross, mutate

_ROUNDS = 16  # of making up for sketches that have fewer rows than their share
_FEW = 0.1  # a sketch that gives less than this of the rows requested is used up


class SearchError(TensoreseError):
    """A setting that the search does not support."""


@dataclass(frozen=True, kw_only=True)
class EvolutionConfig:
    """Shares are of the population unless stated otherwise."""

    population: int = 2048
    """Rows scored per call, over all generations and sketches."""
    generations: int = 6
    first: float = 0.2
    """Share of the first generation; the later ones divide the rest."""
    measured: float = 0.25
    """Share of the first generation bred from the fastest measured rows; the rest is drawn."""
    parents: int = 32
    """Best rows of a sketch, by score, that children come from."""
    crossed: float = 0.4
    """Share of the children with two parents; the others are mutated."""
    epsilon: float = 0.05
    """Share of the proposals drawn at random, whatever the ranker says."""
    apart: float = 1.5
    """Least distance between two proposals of a sketch, while there are others."""

    def __post_init__(self) -> None:
        if self.population < 1 or self.generations < 1 or self.parents < 1:
            raise SearchError(
                "population, generations and parents must be at least 1, but got "
                f"{self.population}, {self.generations}, {self.parents}"
            )
        for name in ("first", "measured", "crossed", "epsilon"):
            if not 0 <= getattr(self, name) <= 1:
                raise SearchError(f"{name} must be a share (0 to 1), but got {getattr(self, name)}")


class Evolution(Proposer):
    """Parents are the fastest measured rows and drawn ones; the ranker alone judges children."""

    name = "evolution"

    def __init__(
        self, ranker: Ranker, config: EvolutionConfig | None = None, seed: int = 0
    ) -> None:
        self.ranker = ranker
        self.config = config or EvolutionConfig()
        self.seed = seed
        self.rng = np.random.default_rng(seed)
        """Of the batch at hand."""

    def propose(self, states: Sequence[TaskState], n: int) -> list[list[Proposal]]:
        return [self.evolve(state, n) for state in states]

    def update(self, measurements: Sequence[Measurement]) -> None:
        self.ranker.update(measurements)

    def evolve(
        self, state: TaskState, n: int, seeds: Sequence[tuple[int, Ints]] = ()
    ) -> list[Proposal]:
        """`seeds` are `(sketch, rows)` that join the first generation: a generator's, say."""
        self.rng = state.rng(self.seed)
        shares = sketch_shares(state)
        counts = split(self.config.population, shares)
        # What is picked must be new: as many more are kept as were seen.
        most = picked_from(n) + self.config.parents + len(state.seen)
        every = [Leaders(state, self.ranker, sketch, most) for sketch in range(len(counts))]
        for leaders, count in zip(every, counts, strict=True):
            self._evolve(leaders, count, [rows for at, rows in seeds if at == leaders.sketch])
        self._make_up(every)
        scored = [leaders.scored() for leaders in every]
        n_random = int(self.config.epsilon * n + self.rng.random())
        origin = f"{self.name}:{self.ranker.name}"
        picked = pick(state, scored, n - n_random, origin, apart=self.config.apart)
        return picked + random_proposals(state, n - len(picked), shares, self.rng, picked)

    def _evolve(self, leaders: Leaders, count: int, seeds: Sequence[Ints]) -> None:
        """Scores about `count` rows of a sketch, over all generations."""
        state, sketch, config = leaders.state, leaders.sketch, self.config
        space = state.computed(sketch)
        first = round(count * config.first) if config.generations > 1 else count
        best = measured_best(state, sketch, config.parents)
        known = [best, *seeds]
        for size in list(_pieces(first if space.covered else min(first, CHUNK))) or [0]:
            leaders.see(np.vstack([*known, self._founders(state, sketch, size, best)]))
            known = []
        for left in range(config.generations - 1 if space.covered else 0, 0, -1):
            self._generation(leaders, max(1, count - leaders.n_scored) // left)

    def _generation(self, leaders: Leaders, n: int) -> None:
        """Scores about `n` rows, bred from the best so far; a large generation is many."""
        state, sketch = leaders.state, leaders.sketch
        for size in _pieces(n):
            parents = leaders.best(self.config.parents)
            children = leaders.unknown(self._bred(state.computed(sketch), parents, size))
            # Children that were there already make room for strangers.
            strangers = draw(state, sketch, size - len(children), self.rng, computed=True)
            leaders.see(np.vstack([children, strangers]))

    def _make_up(self, every: Sequence[Leaders]) -> None:
        """What small sketches could not give to the population, the others do."""
        left = [one for one in every if one.state.computed(one.sketch).covered]
        for _ in range(_ROUNDS):
            missing = self.config.population - sum(one.n_scored for one in every)
            if missing <= 0 or not left:
                return
            # A few more than are missing: of a small sketch most children are known.
            sizes = split(max(missing, 32), np.full(len(left), 1 / len(left)))
            fruitful = []
            for one, size in zip(left, sizes, strict=True):
                before = one.n_scored
                self._generation(one, size)
                if one.n_scored - before >= _FEW * size:
                    fruitful.append(one)
            left = fruitful

    def _founders(self, state: TaskState, sketch: int, n: int, best: Ints) -> Ints:
        """Children of measured rows, the faster the more; the rest is drawn."""
        space = state.computed(sketch)
        bred = round(n * self.config.measured) if len(best) and space.covered else 0
        drawn = draw(state, sketch, n - bred, self.rng, computed=True)
        if not bred:
            return drawn
        return np.vstack([self._bred(space, best, bred), drawn])

    def _bred(self, space: DecisionSpace, parents: Ints, n: int) -> Ints:
        """`n` children of parents, which come best first; the best have the most."""
        if not len(parents) or n <= 0:
            return parents[:0]
        rank = (len(parents) * self.rng.random((2, n)) ** 2).astype(np.int64)
        n_crossed = round(n * self.config.crossed) if len(parents) > 1 else 0
        mine, theirs = parents[rank[0]], parents[rank[1]]
        mixed = cross(space, mine[:n_crossed], theirs[:n_crossed], self.rng, tries=3)
        return np.vstack([mixed, mutate(space, mine[n_crossed:], self.rng, tries=3)])


def _pieces(n: int) -> Iterator[int]:
    """`n` in pieces small enough to be held at once."""
    for start in range(0, n, CHUNK):
        yield min(CHUNK, n - start)
