"""Models trained side by side learn what each would learn alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tensorese.features.matrix import Encoder
from tensorese.features.programs import ProgramSet, encode_programs
from tensorese.models.tlp import TLPConfig, TLPNetwork
from tensorese.training.groups import GroupConfig
from tensorese.training.stacked import StackedTrainer, keep_labels
from tensorese.training.trainer import TrainConfig, Trainer

pytestmark = pytest.mark.null

CONFIG = TrainConfig(epochs=2, groups=GroupConfig(size=16, per_batch=4), lr=3e-3, average=0.9)


def test_stacked_training_is_training(toy: ProgramSet) -> None:
    """Without dropout a stacked network takes the same steps as one alone."""
    spec = toy.spec(physics=False)

    def build(seed: int) -> TLPNetwork:
        torch.manual_seed(seed)
        config = TLPConfig(spec=spec, width=16, heads=2, dropout=0.0, noise=0.0)
        return TLPNetwork(config, toy.platforms)

    encoded = encode_programs(toy, Encoder(spec))
    runs = [(toy, range(4), 0), (toy, range(3), 7)]
    stacked = StackedTrainer(build, encoded, runs, CONFIG, "cpu")
    losses: list[list[float]] = []
    stacked.fit(lambda done, loss_M: losses.append([done, *loss_M.tolist()]))
    alone = Trainer(build(0), toy, encoded, train_tasks=range(4), config=CONFIG)
    assert stacked.per_epoch == alone.groups.per_epoch
    for name, value in alone.fit().named_parameters():
        torch.testing.assert_close(value.data, stacked.weights(0)[name], rtol=2e-3, atol=2e-4)
    first = [[entry["epoch"], entry["loss"]] for entry in alone.history]
    np.testing.assert_allclose([row[:2] for row in losses], first, rtol=1e-3)
    assert all(row[1] != row[2] for row in losses)
    assert any(not torch.equal(t, stacked.weights(1)[n]) for n, t in stacked.weights(0).items())


def test_kept_labels_are_as_many_as_asked_for_and_true(lakes: ProgramSet) -> None:
    head, other = lakes.head("lake-16c"), lakes.head("lake-1c")
    some = range(6)
    few = keep_labels(replace(lakes, failed=lakes.failed | True), "lake-16c", some, 10, seed=3)
    kept = few.valid(head)
    assert len(kept) == 10 and set(lakes.task[kept].tolist()) <= set(some)
    np.testing.assert_array_equal(few.latency[kept, head], lakes.latency[kept, head])
    np.testing.assert_array_equal(few.latency[:, other], lakes.latency[:, other])
    assert not few.failed[:, head].any() and few.failed[:, other].all()
    again = keep_labels(lakes, "lake-16c", some, 10, seed=4)
    assert set(again.valid(head).tolist()) != set(kept.tolist())
