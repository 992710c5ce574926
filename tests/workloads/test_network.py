"""Inputs a network is verified on: plausible ones, and two that differ."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tensorese.workloads import NetworkError, load_network
from tensorese.workloads.network import Network, checked_inputs
from tensorese.workloads.token_ranges import lookup_ranges
from workload_support import export, network_of

pytestmark = pytest.mark.tvm


class Lookup(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(300, 8)
        self.kinds = nn.Embedding(5, 8)

    def forward(self, ids: Tensor, kinds: Tensor, count: Tensor, x: Tensor) -> Tensor:
        return self.words(ids.reshape(2, 8).long()) + self.kinds(kinds) + x * count


def lookup(ids: int = 7) -> Network:
    whole = torch.full((16,), ids, dtype=torch.int32)
    pair = torch.randint(0, 5, (2, 8)), torch.tensor([3])
    return network_of(Lookup(), whole, *pair, torch.randn(2, 8, 8))


def test_an_index_stays_within_its_table() -> None:
    assert lookup_ranges(lookup().module) == {0: 300, 1: 5}
    bare = load_network(export(Lookup(), *_tensors()))
    drawn = Network(name="n", module=bare.module, inputs=bare.inputs, reference=bare.reference)
    ids, kinds, count, _ = drawn.example(0)
    assert 100 < ids.max() < 300 and 2 <= kinds.max() < 5 and count.max() < 2


def _tensors() -> tuple[Tensor, ...]:
    return (
        torch.zeros(16, dtype=torch.int32),
        torch.zeros(2, 8, dtype=torch.int64),
        torch.tensor([3]),
        torch.randn(2, 8, 8),
    )


def test_integers_of_example_inputs_are_used_and_shuffled_once_more() -> None:
    network = lookup()
    assert set(network.given) == {"ids", "kinds", "count"}
    first, second = network.example(0), network.example(1)
    assert np.array_equal(first[0], np.full(16, 7)) and first[2] == second[2] == 3
    assert np.array_equal(first[1], network.given["kinds"])
    assert not np.array_equal(first[1], second[1])
    assert sorted(first[1].ravel()) == sorted(second[1].ravel())
    assert not np.array_equal(first[3], second[3])


def test_given_inputs_must_fit() -> None:
    network = lookup()
    ids = np.arange(16, dtype=np.int32)
    assert checked_inputs(network, {"ids": ids})["ids"] is ids
    with pytest.raises(NetworkError, match="but got 'idz' \\(did you mean 'ids'"):
        checked_inputs(network, {"idz": ids})
    with pytest.raises(NetworkError, match="'ids' must be 16 int32, but got 16 int64"):
        checked_inputs(network, {"ids": ids.astype(np.int64)})
    with pytest.raises(NetworkError, match="'ids' must be 16 int32, but got 4x4 int32"):
        checked_inputs(network, {"ids": ids.reshape(4, 4)})
