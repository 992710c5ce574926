"""Proposers that a language model writes for: which model, what is asked of it, whose turn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models_support import ensemble_model
from writer_support import micro_writer

from search_support import PLATFORM, drawn, measured, task_state
from tensorese.models.base import Card, ModelError, save_model
from tensorese.records.nouns import Platform
from tensorese.search.contracts import Proposal
from tensorese.search.proposers.by_name import check_name, proposer_named
from tensorese.search.proposers.evolution import SearchError
from tensorese.search.proposers.portfolio import Portfolio, member_shares
from tensorese.search.proposers.tlm import TLMProposer, WritingConfig, writer_for
from tensorese.search.rankers.online import OnlineRanker

pytestmark = pytest.mark.null


def test_alone_it_proposes_what_it_finds_likeliest() -> None:
    state = task_state()
    proposer = TLMProposer(model=micro_writer())
    (found,) = proposer.propose([state], 8)
    written = proposer.written(state, 8, int(state.rng(0).integers(1 << 62)))
    best = max(float(group.scores.max()) for group in written)
    assert found[0].score == pytest.approx(best)
    assert all(p.origin == f"tlm:{proposer.model.hash}" for p in found if p.score == p.score)  # type: ignore[union-attr]


def test_a_ranker_orders_what_was_written() -> None:
    state = task_state()
    for measurement in measured(state, drawn(state, 48)):
        state.add(measurement)
    ranker = OnlineRanker()
    ranker.update(state.measurements)
    alone, ranked = (
        TLMProposer(r, model=micro_writer()).propose([state], 12)[0] for r in (None, ranker)
    )
    latencies = [
        np.mean([m.latency for m in measured(state, proposals)]) for proposals in (alone, ranked)
    ]
    assert latencies[1] < latencies[0]


def test_sketches_that_have_no_row_are_not_written() -> None:
    state = task_state()
    proposer = TLMProposer(model=micro_writer())
    assert {group.sketch for group in proposer.written(state, 4, 0)} == {0, 1}
    state.barren.add(0)
    assert {group.sketch for group in proposer.written(state, 4, 0)} == {1}


def test_shares_follow_what_was_measured() -> None:
    state = task_state()
    even = member_shares(state, ["tlm", "evolution"], 0.2)
    np.testing.assert_allclose(even, [0.5, 0.5])
    order = sorted(drawn(state, 12), key=lambda p: measured(state, [p])[0].latency)
    named = [
        Proposal(sketch=p.sketch, row=p.row, origin=f"portfolio:{who}:x")
        for who, part in (("tlm", order[:8]), ("evolution", order[-8:]))
        for p in part
    ]
    for measurement in measured(state, named):
        state.add(measurement)
    shares = member_shares(state, ["tlm", "evolution"], 0.2)
    assert shares[0] > 0.6 and shares[1] >= 0.2 and shares.sum() == pytest.approx(1.0)


def test_the_portfolio_says_who_thought_of_each() -> None:
    state = task_state()
    portfolio = Portfolio(OnlineRanker(), writer=TLMProposer(model=micro_writer()))
    (found,) = portfolio.propose([state], 12)
    members = {p.origin.split(":")[1] if ":" in p.origin else p.origin for p in found}
    assert {"tlm"} < members or {"evolution"} < members or len(members) > 1


def test_a_folder_of_another_kind_is_refused(tmp_path: Path) -> None:
    save_model(tmp_path, ensemble_model(), Card())
    with pytest.raises(ModelError, match=r"must be a model of kind tlm, but .* ensemble"):
        writer_for(PLATFORM, tmp_path)
    with pytest.raises(SearchError, match="needs a model that writes programs of rocm-x's"):
        writer_for(Platform(name="rocm-x", target='{"kind":"rocm"}'))


def test_a_folder_is_loaded_when_it_is_named(tmp_path: Path) -> None:
    save_model(tmp_path, micro_writer(), Card())
    for name in ("tlm", "portfolio"):
        proposer = proposer_named(f"{name}:{tmp_path}", OnlineRanker(), 0, PLATFORM)
        writer = proposer.writer if isinstance(proposer, Portfolio) else proposer
        assert isinstance(writer, TLMProposer)
        assert writer.model is not None and writer.model.hash == micro_writer_hash(tmp_path)


def micro_writer_hash(folder: Path) -> str:
    return writer_for(PLATFORM, folder).hash


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("tml", r"one of .*tlm, portfolio, but got 'tml' \(did you mean 'tlm'\?\)"),
        ("evolution:here", "is for tlm and portfolio, but got 'evolution:here'"),
        ("tlm:nowhere", "must name the folder of a model of kind tlm, but 'nowhere' is none"),
    ],
)
def test_names_that_cannot_be(spec: str, says: str) -> None:
    with pytest.raises(SearchError, match=says):
        check_name(spec)


def test_amounts_that_cannot_be() -> None:
    with pytest.raises(SearchError, match="per_program and least must be at least 1"):
        WritingConfig(per_program=0)
