"""What `--proposer` means: every proposer of the package by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tensorese.errors import did_you_mean
from tensorese.search.contracts import Proposer, Ranker
from tensorese.search.proposers.annealing import Annealing
from tensorese.search.proposers.evolution import Evolution, EvolutionConfig, SearchError
from tensorese.search.proposers.random import RandomSearch

DEFAULT = "evolution"
_EVOLUTION = EvolutionConfig(population=1024)  # for small batches: thinking takes cores too

PROPOSERS: Mapping[str, Callable[[Ranker, int], Proposer]] = {
    Evolution.name: lambda ranker, seed: Evolution(ranker, _EVOLUTION, seed),
    Annealing.name: lambda ranker, seed: Annealing(ranker, seed=seed),
    RandomSearch.name: lambda ranker, seed: RandomSearch(seed),
}
"""Makers by name, of a ranker and a seed; the contract suite runs over all of them."""


def check_name(name: str) -> None:
    if name not in PROPOSERS:
        raise SearchError(
            f"--proposer must be one of {', '.join(PROPOSERS)}, but got {name!r}"
            f"{did_you_mean(name, PROPOSERS)}"
        )


def proposer_named(name: str, ranker: Ranker, seed: int) -> Proposer:
    """The proposer, which teaches `ranker` what it learns."""
    check_name(name)
    return PROPOSERS[name](ranker, seed)
