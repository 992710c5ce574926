"""Heads that are held together while they are trained."""

from __future__ import annotations

import pytest
import torch

from tensorese.models.physics_net import PhysicsConfig
from tensorese.training.head_coupling import head_groups, pull, start_alike
from tensorese.training.physics import PhysicsNetwork

pytestmark = pytest.mark.null


def network() -> PhysicsNetwork:
    config = PhysicsConfig(machine="cpu", networks=2, width=16, blocks=1)
    return PhysicsNetwork(config, ("a", "b", "c"))


def heads(of: PhysicsNetwork) -> list[list[torch.Tensor]]:
    return head_groups(dict(of.named_parameters()))


def test_groups_are_heads_of_one_network() -> None:
    found = heads(network())
    assert len(found) == 2 * 4  # two networks, two layers with weight and bias
    assert all(len(group) == 3 for group in found)
    shapes = [{tuple(tensor.shape) for tensor in group} for group in found]
    assert all(len(shape) == 1 for shape in shapes)


def test_heads_start_alike_and_networks_do_not() -> None:
    alike = network()
    start_alike(alike)
    started = heads(alike)
    assert all(torch.equal(group[0], tensor) for group in started for tensor in group)
    assert not torch.equal(started[0][0], started[4][0])


def test_a_pull_shrinks_differences_and_keeps_the_mean() -> None:
    group = heads(network())[0]
    before = torch.stack([tensor.detach().clone() for tensor in group])
    pull([group], 0.25)
    after = torch.stack([tensor.detach() for tensor in group])
    torch.testing.assert_close(after.mean(0), before.mean(0))
    torch.testing.assert_close(after - after.mean(0), 0.75 * (before - before.mean(0)))
    pull([group], 1.0)
    torch.testing.assert_close(group[0], group[2])
