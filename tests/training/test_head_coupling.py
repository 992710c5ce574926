"""Heads that are held together while they are trained."""

from __future__ import annotations

import pytest
import torch
from tensorese.models.mtl_tlp import MTLTLP
from tensorese.models.trunk import TrunkConfig

from tensorese.features.matrix import MatrixSpec
from tensorese.models.tlp import TLPConfig
from tensorese.training.head_coupling import head_groups, pull, start_alike

pytestmark = pytest.mark.null


def model() -> MTLTLP:
    trunk = TrunkConfig(style="physics", width=16, blocks=1)
    config = TLPConfig(trunk=trunk, spec=MatrixSpec(machine="cpu"), members=2)
    return MTLTLP(config, ("a", "b", "c"))


def heads(of: MTLTLP) -> list[list[torch.Tensor]]:
    return head_groups(dict(of.named_parameters()))


def test_groups_are_heads_of_one_network() -> None:
    found = heads(model())
    assert len(found) == 2 * 4  # two networks, two layers with weight and bias
    assert all(len(group) == 3 for group in found)
    shapes = [{tuple(tensor.shape) for tensor in group} for group in found]
    assert all(len(shape) == 1 for shape in shapes)


def test_heads_start_alike_and_networks_do_not() -> None:
    started = heads(start_alike(model()))
    assert all(torch.equal(group[0], tensor) for group in started for tensor in group)
    assert not torch.equal(started[0][0], started[4][0])


def test_a_pull_shrinks_differences_and_keeps_the_mean() -> None:
    group = heads(model())[0]
    before = torch.stack([tensor.detach().clone() for tensor in group])
    pull([group], 0.25)
    after = torch.stack([tensor.detach() for tensor in group])
    torch.testing.assert_close(after.mean(0), before.mean(0))
    torch.testing.assert_close(after - after.mean(0), 0.75 * (before - before.mean(0)))
    pull([group], 1.0)
    torch.testing.assert_close(group[0], group[2])
