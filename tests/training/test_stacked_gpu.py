from __future__ import annotations

import pytest
import torch

from tensorese.features.matrix import Encoder
from tensorese.features.programs import ProgramSet, encode_programs
from tensorese.models.network import as_batch, outputs_of
from tensorese.models.tlp import TLPConfig, TLPNetwork
from tensorese.training.groups import GroupConfig
from tensorese.training.stacked import StackedTrainer
from tensorese.training.trainer import TrainConfig

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def test_captured_steps_train_like_plain_ones(toy: ProgramSet) -> None:
    def build(seed: int) -> TLPNetwork:
        torch.manual_seed(seed)
        still = {"dropout": 0.0, "noise": 0.0, "physics_noise": 0.0}
        config = TLPConfig(spec=toy.spec(), width=16, heads=2, **still)
        return TLPNetwork(config, toy.platforms)

    encoded = encode_programs(toy, Encoder(toy.spec()))
    groups = GroupConfig(size=16, per_batch=4)
    config = TrainConfig(epochs=3, groups=groups, bf16=False)
    runs = [(toy, range(4), 0), (toy, range(4), 1)]
    scores = []
    for graph in (True, False):
        stacked = StackedTrainer(build, encoded, runs, config, "cuda", graph=graph)
        stacked.fit()
        network = build(1)
        network.load_state_dict(stacked.weights(1))
        batch = as_batch(encoded).select(torch.arange(50))
        scores.append(outputs_of(network, batch, 0, 50)[:, 0, 0])
    # Three steps at rate 0 before the capture leave a trace in Adam's moments only.
    assert torch.corrcoef(torch.stack(scores))[0, 1] > 0.95
