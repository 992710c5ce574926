"""Both trunks of TLP, its presets, and heads that come and go."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from models_support import tlp_model

from synthetic_support import synthetic_measurements
from tensorese.features.matrix import Encoder
from tensorese.features.programs import ProgramSet, encode_programs, read_programs
from tensorese.language.vocabulary import TYPE_SLOTS
from tensorese.models.base import ModelError
from tensorese.models.network import as_batch, outputs_of
from tensorese.models.tlp import (
    MTLTLP,
    NEVER,
    TLP,
    PaperTrunk,
    TLPConfig,
    TLPMember,
    TLPNetwork,
    paper_config,
    with_head,
)
from tensorese.records.store import Store

pytestmark = pytest.mark.null

BOTH = ("fast", "slow")


@pytest.fixture(scope="module")
def lengths(tmp_path_factory: pytest.TempPathFactory) -> ProgramSet:
    """Programs of two sketches, one with fewer rows that decisions reach."""
    with Store.open(tmp_path_factory.mktemp("lengths"), create=True) as store:
        store.ingest(synthetic_measurements(platforms=BOTH, tasks=3, per_task=16, short=2))
        return read_programs([store])


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
    assert asked[..., 0].std(0).min() > 0


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


def test_paper_parameters_are_the_published_count() -> None:
    """610,241 live ones with an 11-wide one-hot; our types take more columns."""
    network = TLPNetwork(paper_config("cuda"), ("k80",))
    size = sum(p.numel() for p in network.parameters())
    assert size - 64 * (TYPE_SLOTS - 11) == 610_241


def _paper_member(seed: int = 0) -> TLPMember:
    torch.manual_seed(seed)
    member = TLPNetwork(paper_config("cpu"), ("fast",)).members[0]
    assert isinstance(member, TLPMember)
    return member.eval()


def _published(member: TLPMember, rows_NLC: torch.Tensor) -> torch.Tensor:
    """The published network, written with torch's own attention, on the same weights."""
    weights = dict(member.trunk.named_parameters())
    mixer = torch.nn.MultiheadAttention(256, 8, batch_first=True)
    with torch.no_grad():
        mixer.in_proj_weight.copy_(weights["query_key_value.weight"])
        mixer.in_proj_bias.copy_(weights["query_key_value.bias"])
        mixer.out_proj.weight.copy_(weights["merge.weight"])
        mixer.out_proj.bias.copy_(weights["merge.bias"])
    x = rows_NLC
    for k in range(4):
        x = F.relu(F.linear(x, weights[f"encode.{2 * k}.weight"], weights[f"encode.{2 * k}.bias"]))
    x = x + mixer(x, x, x, need_weights=False)[0]
    for k in range(2):
        x = x + F.relu(F.linear(x, weights[f"blocks.{k}.weight"], weights[f"blocks.{k}.bias"]))
    head = member.heads[0]
    score_NL: torch.Tensor = head(x)[..., 0]
    return score_NL.sum(1)  # of padding rows too


def test_the_paper_network_is_the_published_one(lengths: ProgramSet) -> None:
    """Row for row as the matrix says, heads, residuals, and the sum over positions."""
    config = paper_config("cpu")
    encoded = encode_programs(lengths, Encoder(config.spec))
    index = np.arange(0, len(lengths), 3)
    matrix = torch.from_numpy(encoded.matrix(index))
    hot = F.one_hot(matrix[:, :, 0].long(), TYPE_SLOTS).float()
    real = torch.from_numpy(np.stack([t.mask for t in encoded.templates])[encoded.pair[index]])
    assert len({int(n) for n in real.sum(1)}) > 1  # programs of two lengths
    rows = torch.cat([hot * real[..., None], matrix[:, :, 1:]], dim=-1)
    rows[..., TYPE_SLOTS:] /= 8.0  # far from saturated
    member = _paper_member()
    with torch.no_grad():
        # Sharp attention: untrained, every row looks at all rows alike.
        member.trunk.get_parameter("query_key_value.weight")[: 2 * 256] *= 12.0
        batch = as_batch(encoded).select(torch.from_numpy(index))
        sketches = replace(batch.sketches, numbers_SLW=batch.sketches.numbers_SLW / 8.0)
        scaled = replace(batch, sketches=sketches, values_NV=batch.values_NV / 8.0)
        got, want = member(scaled)[:, 0, 0], _published(member, rows)
    assert want.std() > 1e-3
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_the_paper_network_scores_by_its_rank_output_alone(toy: ProgramSet) -> None:
    model = _variants(toy)["paper"]
    inputs = model.read_all(toy)
    outputs = outputs_of(model.network, inputs, model.head_index("slow"), 512)
    np.testing.assert_array_equal(model.rank(inputs, "slow"), outputs[:, 0, 0].numpy())
    likely_speed = -F.softplus(-outputs[:, 0, 0]) / np.log(2.0)
    np.testing.assert_allclose(model.speeds(inputs, "slow")[:, 0], likely_speed, rtol=1e-5)


def test_what_was_not_taught_to_fail_lowers_no_score(toy: ProgramSet) -> None:
    spec = toy.spec(physics=False)
    taught, untaught = tlp_model(spec, BOTH), tlp_model(spec, BOTH, fails=False)
    raw = {}
    for name, model in (("taught", taught), ("untaught", untaught)):
        inputs = model.read_all(toy)
        raw[name] = outputs_of(model.network, inputs, 0, 512)[:, 0].numpy()
        lowered = raw[name][:, 0] - model.rank(inputs, "fast")
        assert (lowered.max() > 1e-3) == (name == "taught")
    assert (raw["untaught"][:, 1] == NEVER).all() and np.ptp(raw["taught"][:, 1]) > 0
    assert untaught.section()["fails"] is False


def test_an_lstm_reads_rows_in_order(toy: ProgramSet) -> None:
    torch.manual_seed(0)
    config = replace(paper_config("cpu"), mixer="lstm")
    network = TLPNetwork(config, BOTH).eval()
    batch = as_batch(encode_programs(toy, Encoder(config.spec))).select(torch.arange(8))
    member = network.members[0]
    assert isinstance(member, TLPMember) and isinstance(member.trunk, PaperTrunk)
    seen: list[torch.Tensor] = []
    assert member.trunk.lstm is not None
    hook = member.trunk.lstm.register_forward_hook(lambda *call: seen.append(call[2][1][0][0]))
    with torch.no_grad():
        got, want = member.trunk(batch), seen[0]  # the last hidden state
        for block in member.trunk.blocks:
            want = want + F.relu(block(want))
    hook.remove()
    torch.testing.assert_close(got, want[:, None])


@pytest.mark.parametrize("name", VARIANTS[:-1])
def test_padded_rows_are_not_in_the_sums(name: str, lengths: ProgramSet) -> None:
    """A sketch with fewer live rows than its batch-mates scores as it does by itself."""
    model = _variants(lengths)[name]
    together = model.read_all(lengths)
    live = together.sketches.has_live_SR.sum(1)
    assert live.min() < live.max()
    scores = model.rank(together, "fast")
    for pair, members, rows in zip(lengths.pairs, lengths.members, lengths.decisions, strict=True):
        alone = model.read(lengths.workloads[pair.workload], pair.sketch, rows)
        assert alone.sketches.has_live_SR.all()
        np.testing.assert_allclose(model.rank(alone, "fast"), scores[members], rtol=1e-4, atol=1e-4)
