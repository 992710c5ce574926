from __future__ import annotations

import pytest
import torch

from tensorese.language import Encoder
from tensorese.models.mtl_tlp import MTLTLP
from tensorese.models.predict import as_batch, predict
from tensorese.models.programs import ProgramSet, encode_programs
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
