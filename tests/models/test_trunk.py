from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tensorese.features.matrix import Encoder
from tensorese.features.programs import ProgramSet, encode_programs
from tensorese.models.predict import as_batch
from tensorese.models.tlp import TLP, TLPConfig
from tensorese.models.trunk import TrunkConfig

pytestmark = pytest.mark.null

STILL = TrunkConfig(width=16, heads=2, dropout=0.0, noise=0.0, physics_noise=0.0)
TRUNKS = {
    "live": STILL,
    "two layers": replace(STILL, layers=2),
    "all": replace(STILL, style="all"),
    "no positions": replace(STILL, positions=False),
    "physics": replace(STILL, style="physics"),
    "knots": replace(STILL, style="physics", knots=3),
}


@pytest.mark.parametrize("trunk", TRUNKS.values(), ids=TRUNKS.keys())
def test_training_takes_other_ways_to_the_same_scores(toy: ProgramSet, trunk: TrunkConfig) -> None:
    """Products instead of look-ups, masks instead of none."""
    torch.manual_seed(0)
    model = TLP(TLPConfig(trunk=trunk, spec=toy.spec()), ("fast",))
    whole = as_batch(encode_programs(toy, Encoder(model.config.spec)))
    chosen = torch.from_numpy(toy.members[1][:6])
    with torch.no_grad():
        trained = model.train()(whole.select(chosen))
        asked = model.eval()(whole.select(chosen))
        alone = model(whole.select(chosen).compact())
    torch.testing.assert_close(trained, asked, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(alone, asked, rtol=1e-4, atol=1e-5)
    assert asked.std(0).min() > 0


def test_knots_let_a_network_see_steps(toy: ProgramSet) -> None:
    torch.manual_seed(0)
    trunk = replace(STILL, style="physics", knots=2)
    model = TLP(TLPConfig(trunk=trunk, spec=toy.spec()), ("fast",))
    batch = as_batch(encode_programs(toy, Encoder(model.config.spec)))
    model(batch.select(torch.arange(8))).sum().backward()
    knots = model.members[0].trunk.physics.knots
    assert knots.grad is not None and knots.grad.abs().sum() > 0
