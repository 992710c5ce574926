from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tensorese.features.matrix import Encoder
from tensorese.features.programs import DataError, ProgramSet, encode_programs
from tensorese.models.tlp import TLPConfig, TLPNetwork, paper_config
from tensorese.training.hidden_numbers import HiddenConfig, learn_hidden

pytestmark = pytest.mark.null

QUICK = HiddenConfig(steps=80, programs=64, lr=3e-3)


def _network(toy: ProgramSet, **changes: int) -> TLPNetwork:
    torch.manual_seed(0)
    config = TLPConfig(spec=toy.spec(physics=False), width=32, heads=4, noise=0.0, **changes)
    return TLPNetwork(config, ("fast",))


def test_hidden_decisions_are_learnt_without_a_label(toy: ProgramSet) -> None:
    unmeasured = replace(
        toy, latency=np.full_like(toy.latency, np.nan), failed=np.zeros_like(toy.failed)
    )
    network = _network(toy, members=2)
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    encoded = encode_programs(unmeasured, Encoder(network.config.spec))
    losses = learn_hidden(network, unmeasured, encoded, range(4), QUICK)
    assert len(losses) == 80 and np.mean(losses[-10:]) < 0.7 * np.mean(losses[:5])
    for name, parameter in network.named_parameters():
        is_head = ".heads." in name
        assert torch.equal(parameter, before[name]) <= (
            is_head or "pooled" in name or "residuals" in name
        ), name
        if is_head:
            assert torch.equal(parameter, before[name])


def test_what_is_hidden_is_not_seen(toy: ProgramSet) -> None:
    """A tile that nothing else tells cannot be learnt beyond its spread."""
    rng = np.random.default_rng(0)
    tiles = [2 ** rng.integers(0, 6, rows.shape) for rows in toy.decisions]
    drawn = replace(toy, decisions=tuple(tiles))
    config = replace(_network(toy).config, spec=replace(toy.spec(physics=False), implied=False))
    encoded = encode_programs(drawn, Encoder(config.spec))
    losses = learn_hidden(TLPNetwork(config, ("fast",)), drawn, encoded, range(6), QUICK)
    values = encoded.values[encoded.values > 0]
    least = np.abs(values - np.median(values)).mean() - 0.5  # smooth L1 of the best constant
    assert np.mean(losses[-20:]) > 0.5 * least > 0.1


@pytest.mark.parametrize("change", [{"style": "paper"}, {"spec": "both"}])
def test_it_is_for_the_language_alone(toy: ProgramSet, change: dict[str, str]) -> None:
    config = paper_config("cpu") if "style" in change else TLPConfig(spec=toy.spec())
    network = TLPNetwork(config, ("fast",))
    encoded = encode_programs(toy, Encoder(config.spec))
    with pytest.raises(DataError, match="leave pretrain out"):
        learn_hidden(network, toy, encoded, range(4), QUICK)
