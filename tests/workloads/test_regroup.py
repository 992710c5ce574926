from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tensorese.workloads import tasks_of
from tensorese.workloads.prepare import prepare
from tensorese.workloads.regroup import regroup
from tensorese.workloads.simplify import simplify
from test_simplify import operators
from workload_support import host, network_of, worst_error

pytestmark = pytest.mark.tvm


class Fire(nn.Module):
    """Two convolutions joined, perhaps pooled, then squeezed."""

    def __init__(self, out: int, *, pooled: bool = False, again: bool = False) -> None:
        super().__init__()
        self.one, self.three = nn.Conv2d(3, 8, 1), nn.Conv2d(3, 12, 3, padding=1)
        self.squeeze = nn.Conv2d(20, out, 1)
        self.pooled, self.again = pooled, again

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cat([self.one(x).relu(), self.three(x).relu()], 1)
        if self.pooled:
            y = nn.functional.max_pool2d(y, 3, 2)
        z = self.squeeze(y).relu()
        return z + y.sum() if self.again else z


@pytest.mark.parametrize("pooled", [False, True])
def test_a_squeeze_needs_no_join(pooled: bool) -> None:
    network = network_of(Fire(4, pooled=pooled), torch.randn(1, 3, 12, 12))
    names = operators(regroup(simplify(network.module)))
    assert "concat" not in names and names.count("conv2d") == 4
    assert names.count("max_pool2d") == 2 * pooled
    assert worst_error(network, host()) < 1e-5
    assert not any("concat" in task.name for task in tasks_of(network, host()))


@pytest.mark.parametrize("model", [Fire(16), Fire(4, again=True)])
def test_a_join_stays_where_it_is_cheaper_or_read_again(model: nn.Module) -> None:
    network = network_of(model, torch.randn(1, 3, 12, 12))
    names = operators(regroup(simplify(network.module)))
    assert names.count("concat") == 1 and names.count("conv2d") == 3
    assert worst_error(network, host()) < 1e-5


class Heads(nn.Module):
    def __init__(self, *widths: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(16, width) for width in widths)

    def forward(self, x: Tensor) -> Tensor:
        made = [head(x) for head in self.heads]
        return torch.cat([one.transpose(1, 2) * (at + 1) for at, one in enumerate(made)], 1)


def test_equal_products_of_one_tensor_are_one() -> None:
    network = network_of(Heads(8, 8, 8), torch.randn(2, 6, 16))
    names = operators(regroup(simplify(network.module)))
    assert names.count("matmul") == 1 and names.count("strided_slice") == 3
    assert worst_error(network, host()) < 1e-5


@pytest.mark.parametrize("widths", [(8, 8), (8, 8, 4)])
def test_other_products_stay(widths: tuple[int, ...]) -> None:
    network = network_of(Heads(*widths), torch.randn(2, 6, 16))
    names = operators(regroup(simplify(network.module)))
    assert names.count("matmul") == len(widths) and "strided_slice" not in names


@pytest.mark.parametrize(("filters", "wide"), [(1000, 1024), (250, 256), (336, 336), (40, 40)])
def test_filters_fill_whole_vectors_on_a_cpu(filters: int, wide: int) -> None:
    """Where few are missing: 40 would be 64, and 336 are whole vectors."""
    model = nn.Sequential(nn.Conv2d(8, filters, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    network = network_of(model, torch.randn(1, 8, 9, 9))
    made = [task for task in tasks_of(network, host()) if task.operator == "conv2d"]
    assert [task.workload.args[1].shape[-1] for task in made] == [wide]
    assert worst_error(network, host()) < 1e-5


def test_filters_stay_where_weights_are_what_is_read() -> None:
    network = network_of(nn.Conv2d(8, 1000, 1), torch.randn(1, 8, 7, 7))
    assert "strided_slice" not in operators(regroup(simplify(network.module), whole_vectors=True))


def test_weights_keep_their_order_when_asked() -> None:
    module = network_of(nn.Conv2d(3, 8, 3), torch.randn(1, 3, 9, 9)).module

    def is_free(prepared: object) -> bool:
        return "layout_free_buffers" in str(prepared)

    assert is_free(prepare(module, host()))
    assert not is_free(prepare(module, host(), prepack=False))
