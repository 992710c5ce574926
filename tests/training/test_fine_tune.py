"""Trained models that go on learning from the labels of another platform."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from models_support import trees_model

from tensorese.features.matrix import Encoder
from tensorese.features.programs import ProgramSet, encode_programs
from tensorese.models.base import ModelError
from tensorese.models.physics_net import PhysicsNet
from tensorese.models.tlp import MTLTLP, TLP, TLPConfig, TLPNetwork
from tensorese.training.fine_tune import NewLabels, fine_tune, one_head
from tensorese.training.groups import GroupConfig
from tensorese.training.labels import only
from tensorese.training.physics import FitJob, PhysicsFit, PhysicsSet, train_physics
from tensorese.training.trainer import TrainConfig, Trainer
from training_support import NEW, OLD, pairs_in_order

pytestmark = pytest.mark.null

TINY = PhysicsFit(networks=2, width=32, steps=60, rows=256, lr=3e-3)
TUNING = PhysicsFit(steps=60, rows=256, lr=3e-3)


@pytest.fixture(scope="module")
def labels(lakes: ProgramSet) -> NewLabels:
    """Of the new platform alone."""
    return NewLabels(only(lakes, NEW))


@pytest.fixture(scope="module")
def physics(data: PhysicsSet) -> PhysicsNet:
    """Knows the old platform."""
    job = FitJob(programs=only(data.programs, OLD), tasks=tuple(range(12)))
    return train_physics(data, [job], TINY)[0]


@pytest.fixture(scope="module")
def tlp(lakes: ProgramSet) -> TLP:
    """Knows the old platform."""
    torch.manual_seed(0)
    spec = lakes.spec(physics=False)
    network = TLPNetwork(TLPConfig(spec=spec, width=32), (OLD,))
    Trainer(
        network,
        only(lakes, OLD),
        encode_programs(lakes, Encoder(spec)),
        train_tasks=range(12),
        config=TrainConfig(epochs=12, groups=GroupConfig(size=32, per_batch=4), lr=3e-3),
    ).fit()
    return TLP(network.eval())


@pytest.fixture(params=["physics", "tlp"])
def start(request: pytest.FixtureRequest) -> PhysicsNet | TLP:
    model = request.getfixturevalue(request.param)
    return one_head(model, OLD, NEW)


def _copied(model: PhysicsNet | TLP) -> dict[str, npt.NDArray[Any]]:
    return {name: tensor.copy() for name, tensor in model.tensors(half=False).items()}


def test_it_learns_and_leaves_the_original_alone(
    start: PhysicsNet | TLP, labels: NewLabels
) -> None:
    before = _copied(start)
    tuned = fine_tune(start, labels, range(8), TUNING, heads_only=False)
    assert tuned is not start and tuned.kind == start.kind and tuned.platforms == (NEW,)
    marks = [pairs_in_order(m, labels.programs, NEW, range(8, 12)) for m in (start, tuned)]
    assert marks[1] > marks[0] + 0.05
    for name, tensor in start.tensors(half=False).items():
        np.testing.assert_array_equal(tensor, before[name], err_msg=name)


def test_a_head_learns_what_its_trunk_can_tell(start: PhysicsNet | TLP, lakes: ProgramSet) -> None:
    """A platform on which the fast is slow: the same knowledge, turned round."""
    old = only(lakes, OLD)
    opposite = replace(old, platforms=(NEW,), latency=1e-8 / old.latency)
    before = _copied(start)
    tuned = fine_tune(start, NewLabels(opposite), range(8), TUNING, heads_only=True)
    marks = [pairs_in_order(m, opposite, NEW, range(8, 12)) for m in (start, tuned)]
    assert marks[0] < 0.5 and marks[1] > 0.55
    for name, tensor in start.tensors(half=False).items():
        np.testing.assert_array_equal(tensor, before[name], err_msg=name)


def test_heads_alone_leave_the_trunk_bit_equal(start: PhysicsNet | TLP, labels: NewLabels) -> None:
    tuned = fine_tune(start, labels, range(12), TUNING, heads_only=True).tensors(half=False)
    for name, tensor in start.tensors(half=False).items():
        assert np.array_equal(tensor, tuned[name]) == (".heads." not in name), name


def test_a_tuned_network_can_be_trained_on(tlp: TLP, labels: NewLabels) -> None:
    tuned = fine_tune(
        one_head(tlp, OLD, NEW), labels, range(12), PhysicsFit(steps=1), heads_only=True
    )
    assert isinstance(tuned, TLP)
    assert all(parameter.requires_grad for parameter in tuned.network.parameters())
    assert not tuned.network.training


def test_a_tuned_model_of_several_platforms_keeps_them(lakes: ProgramSet) -> None:
    torch.manual_seed(0)
    config = TLPConfig(spec=lakes.spec(physics=False), width=16)
    model = MTLTLP(TLPNetwork(config, lakes.platforms))
    tuned = fine_tune(model, NewLabels(lakes), range(4), PhysicsFit(steps=1), heads_only=False)
    assert isinstance(tuned, MTLTLP) and tuned.platforms == lakes.platforms


def test_one_head_starts_where_it_was(tlp: TLP, physics: PhysicsNet, lakes: ProgramSet) -> None:
    for model in (tlp, physics):
        alone = one_head(model, OLD, NEW)
        assert alone.platforms == (NEW,)
        inputs = model.read_all(lakes)
        np.testing.assert_allclose(alone.rank(inputs, NEW), model.rank(inputs, OLD), atol=1e-6)


def test_trees_have_no_head_to_copy() -> None:
    with pytest.raises(ModelError, match="learnt by networks, but a model of kind trees has none"):
        one_head(trees_model(), "one-1c", "new")


def test_programs_are_written_once_a_way_of_reading(tlp: TLP, labels: NewLabels) -> None:
    assert labels.encoded(tlp) is labels.encoded(tlp)
    assert labels.physics is labels.physics
