"""What `--proposer` means: every proposer of the package by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tensorese.errors import did_you_mean
from tensorese.records.nouns import Platform
from tensorese.search.contracts import Proposer, Ranker
from tensorese.search.proposers.annealing import Annealing
from tensorese.search.proposers.evolution import Evolution, EvolutionConfig, SearchError
from tensorese.search.proposers.random import RandomSearch

DEFAULT = "evolution"
_EVOLUTION = EvolutionConfig(population=1024)  # for small batches: thinking takes cores too


def _writing(name: str) -> Callable[[Ranker, int], Proposer]:
    """Torch is imported only by those who ask for a proposer that writes."""

    def make(ranker: Ranker, seed: int) -> Proposer:
        from tensorese.search.proposers.portfolio import Portfolio
        from tensorese.search.proposers.tlm import TLMProposer

        return TLMProposer(ranker, seed) if name == "tlm" else Portfolio(ranker, seed)

    return make


PROPOSERS: Mapping[str, Callable[[Ranker, int], Proposer]] = {
    Evolution.name: lambda ranker, seed: Evolution(ranker, _EVOLUTION, seed),
    Annealing.name: lambda ranker, seed: Annealing(ranker, seed=seed),
    RandomSearch.name: lambda ranker, seed: RandomSearch(seed),
    "tlm": _writing("tlm"),
    "portfolio": _writing("portfolio"),
}
"""Makers by name, of a ranker and a seed; the contract suite runs over all of them."""
WRITING = ("tlm", "portfolio")
"""Those that a language model writes for; `NAME:DIR` names its folder."""


def check_name(spec: str) -> None:
    name, _, folder = spec.partition(":")
    if name not in PROPOSERS:
        raise SearchError(
            f"--proposer must be one of {', '.join(PROPOSERS)}, but got {name!r}"
            f"{did_you_mean(name, PROPOSERS)}"
        )
    if folder and name not in WRITING:
        raise SearchError(
            f"--proposer NAME:DIR is for {' and '.join(WRITING)}, but got {spec!r}; "
            f"{name} has no model of its own"
        )
    if folder and not Path(folder).is_dir():
        raise SearchError(
            f"--proposer {name}:DIR must name the folder of a model of kind tlm, but {folder!r} "
            "is none; train one with `tensorese train tlm`"
        )


def proposer_named(
    spec: str, ranker: Ranker, seed: int, platform: Platform | None = None
) -> Proposer:
    """The proposer, which teaches `ranker` what it learns.

    For a `platform`, the model that a writing proposer needs is loaded now: a missing one is an
    error before anything was measured.
    """
    check_name(spec)
    name, _, folder = spec.partition(":")
    proposer = PROPOSERS[name](ranker, seed)
    if name in WRITING and (platform is not None or folder):
        from tensorese.search.proposers.portfolio import Portfolio
        from tensorese.search.proposers.tlm import TLMProposer, writer_for

        writer = proposer.writer if isinstance(proposer, Portfolio) else proposer
        assert isinstance(writer, TLMProposer)
        writer.model = writer_for(platform or Platform(name=""), folder)
    return proposer
