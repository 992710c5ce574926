"""The programs of a task that a model chooses among when nothing is measured, the best first.

A ranker guides evolution, a language model writes, records lend the best of this task and of tasks
like it. Every member of the model that judges, and the writer, then scores all of them relative to
its own favourite; a program is worth what the most doubtful of them says. Where all favour one
program that is the choice; where they do not, nobody's blind spot decides alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tensorese.arrays import Floats64, Ints
from tensorese.models.base import Model
from tensorese.models.catalog import distance, target_of
from tensorese.records.nouns import Platform
from tensorese.records.store import Store
from tensorese.search.contracts import DecisionRow, Proposal, Ranker, TaskState
from tensorese.search.proposers.evolution import Evolution, EvolutionConfig
from tensorese.search.proposers.pool import score
from tensorese.search.proposers.warm_start import has_relative, nearest, seeds
from tensorese.search.rankers.blas import one_thread
from tensorese.search.rankers.build_cost import BuildCostRanker, guessed_cost
from tensorese.search.rankers.guided import FeatureSource, read_here

if TYPE_CHECKING:
    from tensorese.search.proposers.tlm import TLMProposer

LOWEST = -6.0  # doublings behind its favourite, beyond which a member says no more


@dataclass(frozen=True, kw_only=True)
class ShortlistConfig:
    population: int = 2048
    """Rows that evolution scores."""
    evolved: int = 64
    """Programs of evolution among the candidates."""
    written: int = 32
    """Programs of the writer among them, the likeliest."""
    lent: int = 8
    """Programs from records among them."""
    doubling: float = 2.0
    """Standard deviations of the writer's scores that count like half the speed."""


@dataclass(frozen=True, kw_only=True)
class Judges:
    """Who knows something about programs that nobody has timed."""

    ranker: Ranker
    model: Model | None = None
    """Its members vote one by one; without it the ranker's score is the only vote."""
    head: str = ""
    """The platform that the model, and records, speak for."""
    writer: TLMProposer | None = None
    records: Sequence[Store] = ()
    """The nearest first."""
    features: FeatureSource = read_here
    """What the model reads of programs."""


class Shortlist:
    def __init__(
        self, judges: Judges, *, seed: int = 0, config: ShortlistConfig | None = None
    ) -> None:
        self.judges, self.seed = judges, seed
        self.config = config or ShortlistConfig()
        evolution = EvolutionConfig(population=self.config.population, epsilon=0.0)
        self.evolution = Evolution(judges.ranker, evolution, seed)

    def of(self, state: TaskState) -> list[Proposal]:
        """All candidates, best first; their score is the lowest vote, in doublings."""
        lent, related = self._lent(state)
        written = self._written(state)
        first = [*lent, *written]
        known = _by_sketch([(p.sketch, p.row) for p in first])
        seeds_of_evolution = [(s, np.array(list(rows), dtype=np.int64)) for s, rows in known]
        evolved = self.evolution.evolve(state, self.config.evolved, seeds_of_evolution)
        every: dict[tuple[int, DecisionRow], Proposal] = {}
        for proposal in (*first, *evolved):
            every.setdefault((proposal.sketch, proposal.row), proposal)
        candidates = list(every.values())
        worth = self._worst_vote(state, candidates)
        if not related:  # models have seen nothing like it: what was fast nearby is trusted first
            strangers = np.array([p.origin != "store:nearest" for p in candidates])
            worth = np.where(strangers, worth + LOWEST, worth)
        order = np.argsort(-worth, kind="stable")
        return [replace(candidates[k], score=float(worth[k])) for k in order]

    # -- who proposes ---------------------------------------------------------------------

    def _lent(self, state: TaskState) -> tuple[list[Proposal], bool]:
        """Programs from records, and whether the task, or one like it, is in any."""
        lent: list[Proposal] = []
        related = not self.judges.records
        for store in self.judges.records:
            for name in dict.fromkeys((state.platform.name, self.judges.head)):
                there = TaskState(state.workload, state.space, Platform(name=name))
                if name in store.platforms():
                    lent += seeds(there, store, self.config.lent - len(lent), seed=self.seed)
                    related = related or bool(lent) or has_relative(there, store)
        if not related:
            for store in self.judges.records:
                there = TaskState(state.workload, state.space, Platform(name=self.judges.head))
                lent += nearest(there, store, self.config.lent, seed=self.seed)
        return lent, related or not lent

    def _written(self, state: TaskState) -> list[Proposal]:
        writer = self.judges.writer
        if writer is None:
            return []
        seed = int(state.rng(self.seed).integers(1 << 62))
        found = [
            (log, group.sketch, tuple(row.tolist()))
            for group in writer.written(state, self.config.written, seed)
            for log, row in zip(group.scores, group.rows, strict=True)
        ]
        found.sort(key=lambda one: -one[0])
        return [
            Proposal(sketch=sketch, row=row, origin=writer.origin)
            for _, sketch, row in found[: self.config.written]
        ]

    # -- who votes ------------------------------------------------------------------------

    def _worst_vote(self, state: TaskState, candidates: Sequence[Proposal]) -> Floats64:
        votes = self._votes(state, candidates, self._members)
        writer = self.judges.writer
        if writer is not None and writer.model is not None and len(candidates) > 1:
            votes = np.hstack([votes, self._writers_vote(state, candidates)])
        relative = np.maximum(votes - votes.max(0, initial=LOWEST), LOWEST)
        worst: Floats64 = relative.min(1)
        if isinstance(self.judges.ranker, BuildCostRanker):
            worst = worst - self._votes(state, candidates, _build_cost)[:, 0]
        return worst

    def _votes(
        self,
        state: TaskState,
        candidates: Sequence[Proposal],
        ask: Callable[[TaskState, int, Ints], Floats64],
    ) -> Floats64:
        """`[n, members]`, each sketch's programs at once."""
        votes: list[Floats64] = [np.zeros(0)] * len(candidates)
        for sketch in sorted({p.sketch for p in candidates}):
            mine = [k for k, p in enumerate(candidates) if p.sketch == sketch]
            rows = np.array([candidates[k].row for k in mine], dtype=np.int64)
            for k, vote in zip(mine, ask(state, sketch, rows), strict=True):
                votes[k] = vote
        return np.array(votes).reshape(len(candidates), -1)  # no candidates, no columns

    def _members(self, state: TaskState, sketch: int, rows: Ints) -> Floats64:
        model = self.judges.model
        if model is None:
            return score(state, self.judges.ranker, sketch, rows)[:, None]
        record = state.space.sketches[sketch].sketch
        inputs = self.judges.features(model, state.workload, record, rows)
        with one_thread():
            return model.by_member(inputs, self.judges.head).astype(np.float64)

    def _writers_vote(self, state: TaskState, candidates: Sequence[Proposal]) -> Floats64:
        """In doublings; of what it cannot read it thinks as of the average."""
        writer = self.judges.writer
        assert writer is not None and writer.model is not None
        model, head = writer.model, nearest_head(writer.model, state.platform)

        def ask(state: TaskState, sketch: int, rows: Ints) -> Floats64:
            space = state.space.sketches[sketch]
            if not space.covered:
                return np.full((len(rows), 1), np.nan)
            opinions = model.opinions(model.read(state.workload, space.sketch, rows), head)
            return opinions.astype(np.float64)

        votes = self._votes(state, candidates, ask)
        read = votes[np.isfinite(votes)]
        if not len(read):
            return np.zeros_like(votes)
        votes = np.nan_to_num(votes, nan=float(read.mean()))
        spread: Floats64 = votes / max(self.config.doubling * float(read.std()), 1e-9)
        return spread


def nearest_head(model: Model, platform: Platform) -> str:
    """The platform itself, or the one that the model knows most like it."""
    if platform.name in model.platforms:
        return platform.name
    wanted = target_of(platform.name, platform.target)
    targets = getattr(model, "targets", None) or model.card.targets
    gaps = {
        name: distance(wanted, target_of(name, targets.get(name, "{}"))) for name in model.platforms
    }
    return min(gaps, key=lambda name: gaps[name])


def _build_cost(state: TaskState, sketch: int, rows: Ints) -> Floats64:
    return guessed_cost(state.space.sketches[sketch].sketch, rows)[:, None]


def _by_sketch(
    places: Sequence[tuple[int, DecisionRow]],
) -> list[tuple[int, list[DecisionRow]]]:
    rows: dict[int, list[DecisionRow]] = {}
    for sketch, row in places:
        rows.setdefault(sketch, []).append(row)
    return list(rows.items())
