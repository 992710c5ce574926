from __future__ import annotations

import pytest
import torch

from tensorese.features.matrix import Encoder
from tensorese.features.programs import ProgramSet, encode_programs
from tensorese.models.mtl_tlp import MTLTLP
from tensorese.models.predict import as_batch, predict, predict_outputs
from tensorese.models.tlp import TLP, ModelError, TLPConfig
from tensorese.models.trunk import TrunkConfig

pytestmark = pytest.mark.null


def _model(toy: ProgramSet) -> MTLTLP:
    config = TLPConfig(trunk=TrunkConfig(width=16, heads=2), spec=toy.spec())
    return MTLTLP(config, ("fast", "slow")).eval()


def test_an_added_head_leaves_the_others_alone(toy: ProgramSet) -> None:
    model = _model(toy)
    batch = as_batch(encode_programs(toy, Encoder(model.config.spec)))
    before = predict(model, batch, torch.arange(8))
    model.add_head("new", like="slow")
    after = predict(model, batch, torch.arange(8))
    torch.testing.assert_close(before, after[:, :2])
    torch.testing.assert_close(after[:, 1], after[:, 2])
    assert model.platforms == ("fast", "slow", "new")


def test_a_platform_has_one_head(toy: ProgramSet) -> None:
    with pytest.raises(ModelError, match="already"):
        _model(toy).add_head("fast")


def test_unknown_platform_is_named_with_a_guess(toy: ProgramSet) -> None:
    with pytest.raises(ModelError, match=r"'fats' \(did you mean 'fast'\?\)"):
        _model(toy).head_index("fats")


def test_plain_tlp_takes_one_platform(toy: ProgramSet) -> None:
    with pytest.raises(ModelError, match="use mtl-tlp"):
        TLP(TLPConfig(spec=toy.spec()), ("fast", "slow"))


def test_networks_of_two_kinds_share_a_model(toy: ProgramSet) -> None:
    trunk = TrunkConfig(width=16, heads=2)
    config = TLPConfig(trunk=trunk, spec=toy.spec(), members=2, physics_members=1, doubt=0.5)
    model = MTLTLP(config, ("fast",))
    model.add_head("new")
    batch = as_batch(encode_programs(toy, Encoder(config.spec)))
    outputs = predict_outputs(model, batch, torch.arange(5))
    assert outputs.shape == (5, 2, 6)
    each = outputs[..., 0::2] + torch.nn.functional.logsigmoid(3.0 - outputs[..., 1::2])
    want = each.mean(-1) - 0.5 * each.std(-1, correction=0)
    torch.testing.assert_close(predict(model, batch, torch.arange(5)), want)


def test_one_head_of_several_says_what_it_said(toy: ProgramSet) -> None:
    model = _model(toy)
    batch = as_batch(encode_programs(toy, Encoder(model.config.spec)))
    one = model.with_head("slow")
    assert (one.kind, one.platforms) == ("tlp", ("slow",))
    both, alone = (predict(m, batch, torch.arange(8)) for m in (model, one))
    torch.testing.assert_close(alone[:, 0], both[:, 1])
    with torch.no_grad():  # weights are its own
        next(iter(one.parameters())).add_(1.0)
    torch.testing.assert_close(predict(model, batch, torch.arange(8)), both)
