from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tensorese.models.mtl_tlp import MTLTLP
from tensorese.models.trunk import TrunkConfig

from tensorese.features.matrix import Encoder
from tensorese.features.programs import ProgramSet, encode_programs
from tensorese.models.tlp import TLPConfig
from tensorese.training.groups import GroupConfig
from tensorese.training.stacked import ManyTrainer
from tensorese.training.trainer import TrainConfig

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_captured_steps_train_like_plain_ones(toy: ProgramSet) -> None:
    def build(seed: int) -> MTLTLP:
        torch.manual_seed(seed)
        trunk = TrunkConfig(width=16, heads=2, dropout=0.0, noise=0.0, physics_noise=0.0)
        return MTLTLP(TLPConfig(trunk=trunk, spec=toy.spec()), toy.platforms)

    encoded = encode_programs(toy, Encoder(toy.spec()))
    groups = GroupConfig(size=16, per_batch=4)
    config = TrainConfig(epochs=3, groups=groups, bf16=False)
    runs = [(toy, range(4), 0), (toy, range(4), 1)]
    scores = []
    for graph in (True, False):
        many = ManyTrainer(build, encoded, runs, replace(config), "cuda", graph=graph)
        many.fit()
        scores.append(many.predict(1, torch.arange(50)))
    # Three steps at rate 0 before the capture leave a trace in Adam's moments only.
    assert torch.corrcoef(torch.stack([s[:, 0] for s in scores]))[0, 1] > 0.95
