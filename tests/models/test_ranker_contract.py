"""What every model must keep: one suite over all trunks."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tensorese.features.matrix import Encoder
from tensorese.features.programs import ProgramSet, encode_programs
from tensorese.models.batch import ProgramBatch
from tensorese.models.mtl_tlp import MTLTLP
from tensorese.models.predict import as_batch, predict
from tensorese.models.tlp import TLP, TLPConfig, paper_config
from tensorese.models.trunk import TrunkConfig

pytestmark = pytest.mark.null

SMALL = TrunkConfig(width=32, heads=4)
TRUNKS = {
    "live": SMALL,
    "live, two layers": replace(SMALL, layers=2),
    "live, no positions": replace(SMALL, positions=False),
    "all": replace(SMALL, style="all"),
    "lstm": replace(SMALL, style="all", backbone="lstm"),
    "whole": replace(SMALL, style="all", whole=True),
    "physics": replace(SMALL, style="physics"),
}
ALL = [*TRUNKS, "paper", "paper lstm"]


def _config(name: str, toy: ProgramSet, extra_rows: int = 0) -> TLPConfig:
    if name.startswith("paper"):
        return paper_config("cpu", "lstm" if "lstm" in name else "attention")
    spec = toy.spec()
    return TLPConfig(trunk=TRUNKS[name], spec=replace(spec, length=spec.length + extra_rows))


def _model(config: TLPConfig) -> TLP:
    torch.manual_seed(0)
    return MTLTLP(config, ("fast", "slow")).eval()


def _batch(config: TLPConfig, toy: ProgramSet) -> ProgramBatch:
    return as_batch(encode_programs(toy, Encoder(config.spec)))


@pytest.mark.parametrize("name", ALL)
def test_score_does_not_depend_on_batch_mates(name: str, toy: ProgramSet) -> None:
    config = _config(name, toy)
    model, batch = _model(config), _batch(config, toy)
    together = predict(model, batch, torch.arange(60))
    alone = torch.cat([predict(model, batch, torch.tensor([k])) for k in (0, 7, 59)])
    torch.testing.assert_close(together[[0, 7, 59]], alone, rtol=1e-4, atol=1e-4)
    turned = predict(model, batch, torch.arange(59, -1, -1)).flip(0)
    torch.testing.assert_close(together, turned, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", TRUNKS)
def test_score_does_not_depend_on_padding(name: str, toy: ProgramSet) -> None:
    short, long = _config(name, toy), _config(name, toy, extra_rows=9)
    model, other = _model(short), _model(long)
    state = model.state_dict()
    for key, value in other.state_dict().items():
        if key in state and state[key].shape != value.shape:  # a longer table of positions
            grown = value.clone()
            grown[: len(state[key])] = state[key]
            state[key] = grown
    other.load_state_dict(state)
    index = torch.arange(40)
    want = predict(model, _batch(short, toy), index)
    got = predict(other, _batch(long, toy), index)
    torch.testing.assert_close(want, got, rtol=1e-4, atol=1e-4)


# Not the published LSTM: it reads the padding last, which washes an untrained state out.
@pytest.mark.parametrize("name", ALL[:-1])
def test_decisions_change_the_score(name: str, toy: ProgramSet) -> None:
    config = _config(name, toy)
    scores = predict(_model(config), _batch(config, toy), torch.arange(40))
    assert scores.shape == (40, 2)
    assert scores[:, 0].unique().numel() > 20


def test_members_are_averaged_less_their_disagreement(toy: ProgramSet) -> None:
    config = replace(_config("live", toy), members=3, doubt=2.0)
    model, batch = _model(config), _batch(config, toy)
    with torch.inference_mode():
        each = torch.stack([m(batch.select(torch.arange(9))) for m in model.members])
    scores = each[..., 0] + torch.nn.functional.logsigmoid(3 - each[..., 1])
    want = scores.mean(0) - 2.0 * scores.std(0, correction=0)
    torch.testing.assert_close(predict(model, batch, torch.arange(9)), want, rtol=1e-4, atol=1e-4)


def test_unused_sketches_change_nothing(toy: ProgramSet) -> None:
    config = _config("live", toy)
    model, batch = _model(config), _batch(config, toy)
    part = batch.select(torch.arange(10))
    with torch.inference_mode():
        torch.testing.assert_close(model(part), model(part.compact()), rtol=1e-4, atol=1e-4)


def test_width_must_fit_heads() -> None:
    with pytest.raises(ValueError, match="multiple of heads"):
        TrunkConfig(width=30, heads=4)


def test_paper_parameters_are_close_to_the_published_count() -> None:
    """610,241 live ones with an 11-wide one-hot; our types take more columns, our head one more."""
    size = sum(p.numel() for p in TLP(paper_config("gpu"), ("k80",)).parameters())
    ours = 64 * (96 - 11) + 65
    assert abs(size - ours - 610_241) < 1000
