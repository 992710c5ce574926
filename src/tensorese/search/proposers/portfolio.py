"""Several proposers at once: a language model writes, evolution breeds, the ranker orders.

What the model writes also joins evolution's first generation. How many of a batch each may name
follows what its programs turned out to be worth on the task; the ranker picks which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tensorese.arrays import Floats64, Ints
from tensorese.records.nouns import Measurement
from tensorese.search.contracts import DecisionRow, Proposal, Proposer, Ranker, TaskState
from tensorese.search.proposers.evolution import Evolution, EvolutionConfig
from tensorese.search.proposers.pool import Scored, pick, score
from tensorese.search.proposers.random_rows import random_proposals
from tensorese.search.proposers.shares import sketch_shares, split
from tensorese.search.proposers.tlm import TLMProposer

SHARPNESS = 4.0


@dataclass(frozen=True, kw_only=True)
class PortfolioConfig:
    evolution: EvolutionConfig = field(default_factory=lambda: EvolutionConfig(population=1024))
    floor: float = 0.2
    """Least share of a batch that a member names, whatever its programs were worth."""
    seeds: int = 64
    """Written programs of a sketch, the likeliest, that evolution starts from."""
    wider: int = 3
    """Programs that each member names for one that is picked."""


class Portfolio(Proposer):
    name = "portfolio"

    def __init__(
        self,
        ranker: Ranker,
        seed: int = 0,
        *,
        writer: TLMProposer | None = None,
        config: PortfolioConfig | None = None,
    ) -> None:
        self.ranker, self.seed = ranker, seed
        self.config = config or PortfolioConfig()
        self.writer = writer or TLMProposer(seed=seed)
        self.evolution = Evolution(ranker, replace(self.config.evolution, epsilon=0.0), seed)

    def propose(self, states: Sequence[TaskState], n: int) -> list[list[Proposal]]:
        return [self._propose(state, n) for state in states]

    def update(self, measurements: Sequence[Measurement]) -> None:
        self.ranker.update(measurements)

    def _propose(self, state: TaskState, n: int) -> list[Proposal]:
        if n <= 0:
            return []
        rng = state.rng(self.seed)
        written = [
            group.new_to(state)
            for group in self.writer.written(state, n, int(rng.integers(1 << 62)))
        ]
        wide = self.config.wider * n
        by_member = {
            self.writer.name: self._ranked(state, written, wide),
            self.evolution.name: self.evolution.evolve(
                state, wide, [(g.sketch, _likeliest(g, self.config.seeds)) for g in written]
            ),
        }
        shares = member_shares(state, list(by_member), self.config.floor)
        picked = _union(by_member, split(n, shares))
        beside = random_proposals(state, n - len(picked), sketch_shares(state), rng, picked)
        return picked + beside

    def _ranked(self, state: TaskState, written: list[Scored], n: int) -> list[Proposal]:
        groups = [
            replace(group, scores=score(state, self.ranker, group.sketch, group.rows))
            for group in written
        ]
        origin = f"{self.name}:{self.writer.name}"
        return pick(state, groups, n, origin, apart=self.writer.config.apart)


def _likeliest(group: Scored, n: int) -> Ints:
    return group.rows[np.argsort(-group.scores, kind="stable")[:n]]


def member_shares(state: TaskState, members: Sequence[str], floor: float) -> Floats64:
    """By member, summing to 1: even at first, then by how fast the better half of its measured
    programs is."""
    worth = np.full(len(members), np.nan)
    for place, member in enumerate(members):
        mine = [m.latency for m in state.measurements if member in m.origin.split(":")]
        known = np.sort([latency for latency in mine if latency > 0])
        if len(known):
            worth[place] = float((state.best_latency / known[: (len(known) + 1) // 2]).mean())
    if np.isnan(worth).all():
        return np.full(len(members), 1.0 / len(members))
    power = np.nan_to_num(worth, nan=float(np.nanmax(worth))) ** SHARPNESS
    shares: Floats64 = floor + (1.0 - floor * len(members)) * power / power.sum()
    return shares


def _union(by_member: dict[str, list[Proposal]], counts: Sequence[int]) -> list[Proposal]:
    """So many of each member, best first; who runs out leaves its part to the others."""
    taken: dict[tuple[int, DecisionRow], Proposal] = {}
    for proposals, count in zip(by_member.values(), counts, strict=True):
        fresh = [p for p in proposals if (p.sketch, p.row) not in taken]
        taken.update({(p.sketch, p.row): p for p in fresh[:count]})
    rest = sorted(
        (p for each in by_member.values() for p in each if (p.sketch, p.row) not in taken),
        key=lambda p: -p.score if p.score == p.score else np.inf,
    )
    for proposal in rest:
        if len(taken) >= sum(counts):
            break
        taken.setdefault((proposal.sketch, proposal.row), proposal)
    return list(taken.values())
