"""Both trunks of TLP, its presets, and heads that come and go."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from models_support import tlp_model

from tensorese.features.matrix import Encoder
from tensorese.features.programs import ProgramSet, encode_programs
from tensorese.models.base import ModelError
from tensorese.models.network import as_batch
from tensorese.models.tlp import MTLTLP, TLP, TLPConfig, TLPNetwork, paper_config, with_head

pytestmark = pytest.mark.null

BOTH = ("fast", "slow")


def _variants(toy: ProgramSet) -> dict[str, TLP]:
    language, both = toy.spec(physics=False), toy.spec()
    torch.manual_seed(0)
    return {
        "language": tlp_model(language, BOTH),
        "both": tlp_model(both, BOTH),
        "two layers": tlp_model(language, BOTH, layers=2),
        "paper": MTLTLP(TLPNetwork(paper_config("cpu"), BOTH).eval()),
    }


VARIANTS = ("language", "both", "two layers", "paper")
every = pytest.mark.parametrize("name", VARIANTS)


@every
def test_score_does_not_depend_on_batch_mates(name: str, toy: ProgramSet) -> None:
    model = _variants(toy)[name]
    batch = model.read_all(toy)
    together = model.rank(batch.select(torch.arange(60)), "slow")
    alone = [model.rank(batch.select(torch.tensor([k])), "slow")[0] for k in (0, 7, 59)]
    np.testing.assert_allclose(together[[0, 7, 59]], alone, rtol=1e-4, atol=1e-4)
    turned = model.rank(batch.select(torch.arange(59, -1, -1)), "slow")[::-1]
    np.testing.assert_allclose(together, turned, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", VARIANTS[:-1])
def test_score_does_not_depend_on_padding(name: str, toy: ProgramSet) -> None:
    model = _variants(toy)[name]
    spec = model.network.config.spec
    longer = replace(model.network.config, spec=replace(spec, length=spec.length + 9))
    network = TLPNetwork(longer, BOTH)
    state = model.network.state_dict()
    for key, value in network.state_dict().items():
        if state[key].shape != value.shape:  # a longer table of positions
            grown = value.clone()
            grown[: len(state[key])] = state[key]
            state[key] = grown
    network.load_state_dict(state)
    other = MTLTLP(network.eval())
    want, got = (m.rank(m.read_all(toy), "fast") for m in (model, other))
    np.testing.assert_allclose(want, got, rtol=1e-4, atol=1e-4)


@every
def test_decisions_change_the_score(name: str, toy: ProgramSet) -> None:
    model = _variants(toy)[name]
    scores = model.rank(model.read_all(toy), "fast")
    assert len(np.unique(scores[:40])) > 20


def test_the_language_alone_sees_no_hardware_features(toy: ProgramSet) -> None:
    language, both = (_variants(toy)[name] for name in ("language", "both"))
    assert language.network.config.spec.n_physics == 0 < both.network.config.spec.n_physics
    assert not any("physics" in name for name in language.network.state_dict())
    assert language.needs != both.needs


@every
def test_training_takes_other_ways_to_the_same_scores(name: str, toy: ProgramSet) -> None:
    """Products instead of look-ups, masks instead of none."""
    config = _variants(toy)[name].network.config
    torch.manual_seed(0)
    still = replace(config, dropout=0.0, noise=0.0, physics_noise=0.0)
    network = TLPNetwork(still, ("fast",))
    whole = as_batch(encode_programs(toy, Encoder(still.spec)))
    chosen = torch.from_numpy(toy.members[1][:6])
    with torch.no_grad():
        trained = network.train()(whole.select(chosen))
        asked = network.eval()(whole.select(chosen))
        alone = network(whole.select(chosen).compact())
    torch.testing.assert_close(trained, asked, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(alone, asked, rtol=1e-4, atol=1e-5)
    assert asked.std(0).min() > 0


def test_members_are_averaged(toy: ProgramSet) -> None:
    model = tlp_model(toy.spec(physics=False), BOTH, members=3)
    opinions = model.opinions(model.read_all(toy), "slow")
    assert opinions.shape == (len(toy), 3) and np.ptp(opinions, axis=1).min() > 0
    np.testing.assert_allclose(model.rank(model.read_all(toy), "slow"), opinions.mean(1), rtol=1e-5)


def test_knots_are_learnt(toy: ProgramSet) -> None:
    network = tlp_model(toy.spec(), ("fast",)).network
    batch = as_batch(encode_programs(toy, Encoder(network.config.spec)))
    network(batch.select(torch.arange(8))).sum().backward()
    knots = network.get_parameter("members.0.trunk.physics.knots")
    assert knots.grad is not None and knots.grad.abs().sum() > 0


def test_an_added_head_leaves_the_others_alone(toy: ProgramSet) -> None:
    model = tlp_model(toy.spec(), BOTH)
    assert isinstance(model, MTLTLP)
    inputs = model.read_all(toy)
    before = model.rank(inputs, "slow")
    model.add_head("new", like="slow")
    model.add_head("fresh")
    assert model.platforms == ("fast", "slow", "new", "fresh")
    for name in ("slow", "new"):
        np.testing.assert_allclose(model.rank(inputs, name), before, rtol=1e-5, atol=1e-6)
    assert np.abs(model.rank(inputs, "fresh") - before).max() > 1e-3
    with pytest.raises(ModelError, match="already"):
        model.add_head("fast")


def test_one_head_of_several_says_what_it_said(toy: ProgramSet) -> None:
    model = tlp_model(toy.spec(), BOTH)
    one = with_head(model, "slow", name="mine")
    assert (one.kind, one.platforms) == ("tlp", ("mine",))
    want = model.rank(model.read_all(toy), "slow")
    np.testing.assert_allclose(one.rank(one.read_all(toy), "mine"), want, rtol=1e-5, atol=1e-6)
    with torch.no_grad():  # weights are its own
        next(iter(one.network.parameters())).add_(1.0)
    np.testing.assert_array_equal(model.rank(model.read_all(toy), "slow"), want)


def test_plain_tlp_takes_one_platform(toy: ProgramSet) -> None:
    with pytest.raises(ModelError, match="use mtl-tlp"):
        TLP(TLPNetwork(TLPConfig(spec=toy.spec()), BOTH))


def test_width_must_fit_heads() -> None:
    with pytest.raises(ValueError, match="multiple of heads"):
        TLPConfig(width=30, heads=4)


def test_paper_parameters_are_close_to_the_published_count() -> None:
    """610,241 live ones with an 11-wide one-hot; our types take more columns, our head one more."""
    network = TLPNetwork(paper_config("cuda"), ("k80",))
    size = sum(p.numel() for p in network.parameters())
    ours = 64 * (96 - 11) + 65
    assert abs(size - ours - 610_241) < 1000
