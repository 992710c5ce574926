"""Networks on hardware features: torch trains them, numpy says the same, a killed run goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tensorese.arrays import Floats32
from tensorese.models.network import as_batch, outputs_of
from tensorese.models.physics_net import PhysicsNet, opinions_of
from tensorese.training import physics
from tensorese.training.checkpoint import CheckpointError
from tensorese.training.labels import only
from tensorese.training.physics import (
    FitJob,
    PhysicsFit,
    PhysicsNetwork,
    PhysicsSet,
    group_config,
    to_model,
    to_network,
    to_standard,
    train_physics,
)
from training_support import NEW, OLD, Killed, kill_after, pairs_in_order

pytestmark = pytest.mark.null

TINY = PhysicsFit(networks=2, width=32, steps=60, rows=256, lr=3e-3)


@pytest.fixture(scope="module")
def job(data: PhysicsSet) -> FitJob:
    """Of both platforms; the last four tasks stay unseen."""
    return FitJob(programs=data.programs, tasks=tuple(range(8)))


@pytest.fixture(scope="module")
def trained(data: PhysicsSet, job: FitJob) -> PhysicsNet:
    return train_physics(data, [job], TINY)[0]


def _by_torch(network: PhysicsNetwork, data: PhysicsSet, platform: str) -> Floats32:
    head = network.platforms.index(platform)
    outputs = outputs_of(network, as_batch(data.encoded), head, 100)
    return opinions_of(np.asarray(outputs.numpy())).mean(1)


@pytest.mark.parametrize("platform", [OLD, NEW])
def test_torch_and_numpy_score_alike(data: PhysicsSet, trained: PhysicsNet, platform: str) -> None:
    network = to_network(trained)
    scores = trained.rank(data.features, platform)
    np.testing.assert_allclose(_by_torch(network, data, platform), scores, atol=1e-5)
    np.testing.assert_array_equal(to_model(network).rank(data.features, platform), scores)
    assert np.ptp(scores) > 0.5


def test_training_ranks_unseen_tasks(data: PhysicsSet, trained: PhysicsNet) -> None:
    for platform in (OLD, NEW):
        assert pairs_in_order(trained, data.programs, platform, range(8)) > 0.75
        assert pairs_in_order(trained, data.programs, platform, range(8, 12)) > 0.65


def test_heads_learn_their_own_platform(data: PhysicsSet, trained: PhysicsNet) -> None:
    tasks = range(12)
    own = pairs_in_order(trained, data.programs, NEW, tasks)
    others = pairs_in_order(trained, data.programs, OLD, tasks, label=NEW)
    assert own > others + 0.05


def test_standard_features_and_back(data: PhysicsSet, trained: PhysicsNet) -> None:
    """The first layer takes over the scaling: the function stays what it was."""
    plain = trained.rank(data.features, OLD)
    inside = to_standard(to_network(trained), data)
    white = replace(data, encoded=data.standard)
    np.testing.assert_allclose(_by_torch(inside, white, OLD), plain, atol=2e-4)
    again = to_standard(inside, data, back=True)
    np.testing.assert_allclose(_by_torch(again, data, OLD), plain, atol=2e-4)


def test_a_killed_run_goes_on_exactly(
    data: PhysicsSet, job: FitJob, trained: PhysicsNet, tmp_path: Path
) -> None:
    state = tmp_path / "state.safetensors"
    with pytest.raises(Killed):
        train_physics(data, [job], TINY, checkpoint=state, progress=kill_after(2))
    epochs: list[int] = []
    resumed = train_physics(
        data, [job], TINY, checkpoint=state, progress=lambda entry: epochs.append(entry["epoch"])
    )[0]
    assert epochs[0] == 3  # the third was lost, the first two were not done again
    for name, tensor in trained.weights.items():
        np.testing.assert_array_equal(resumed.weights[name], tensor, err_msg=name)


def test_a_checkpoint_of_other_networks_is_refused(
    data: PhysicsSet, job: FitJob, tmp_path: Path
) -> None:
    state = tmp_path / "state.safetensors"
    train_physics(data, [job], replace(TINY, steps=1), checkpoint=state)
    with pytest.raises(CheckpointError, match="own settings"):
        train_physics(data, [job], replace(TINY, steps=1, width=16), checkpoint=state)


def test_seeds_side_by_side_learn_too(data: PhysicsSet) -> None:
    """As on a GPU: several seeds as one batch of models."""
    alone, tasks = only(data.programs, OLD), tuple(range(12))
    jobs = [FitJob(programs=alone, tasks=tasks, seed=seed) for seed in range(2)]
    models = physics._train_stacked(data, jobs, replace(TINY, steps=30), "cpu")
    one, other = (model.rank(data.features, OLD) for model in models)
    assert not np.allclose(one, other)
    for model in models:
        assert pairs_in_order(model, alone, OLD, tasks) > 0.6


def test_heads_that_are_pulled_together_differ_less(data: PhysicsSet, job: FitJob) -> None:
    apart, together = (
        train_physics(data, [job], replace(TINY, steps=20, together=pull))[0]
        for pull in (0.0, 100.0)
    )

    def gap(model: PhysicsNet) -> float:
        return float(np.abs(model.rank(data.features, OLD) - model.rank(data.features, NEW)).mean())

    assert gap(together) < 0.5 * gap(apart)


def test_groups_are_as_long_as_tasks(job: FitJob) -> None:
    config = group_config([job], PhysicsFit(rows=512))
    assert (config.size, config.per_batch) == (32, 16)  # 24 programs a task
