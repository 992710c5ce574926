from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tensorese.space.space import task_space
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm
from tensorese.workloads import prepare, tasks_of
from tensorese.workloads.simplify import simplify
from tensorese.workloads.zoo import _unsettle_norms
from workload_support import host, network_of, worst_error

pytestmark = pytest.mark.tvm


def operators(module: object) -> list[str]:
    relax = import_tvm().relax
    names: list[str] = []
    relax.analysis.post_order_visit(
        module["main"],  # type: ignore[index]
        lambda node: names.append(node.op.name) if isinstance(node, relax.Call) else None,
    )
    return [name.removeprefix("relax.").removeprefix("nn.") for name in names]


class Twice(nn.Module):
    """Its convolution is read twice, so its norm must not change the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return y + self.norm(y)


FOLDED = {
    "conv1d": (nn.Sequential(nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8)), (2, 3, 9)),
    "conv2d": (nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)), (2, 3, 9, 9)),
    "biased": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)), (2, 3, 9, 9)),
    "grouped": (nn.Sequential(nn.Conv2d(4, 8, 3, groups=2), nn.BatchNorm2d(8)), (2, 4, 9, 9)),
    "conv3d": (nn.Sequential(nn.Conv3d(3, 8, 3), nn.BatchNorm3d(8)), (1, 3, 5, 5, 5)),
    "transposed": (
        nn.Sequential(nn.ConvTranspose2d(3, 8, 4, 2, bias=False), nn.BatchNorm2d(8)),
        (1, 3, 5, 5),
    ),
}


@pytest.mark.parametrize("kind", FOLDED)
def test_a_norm_moves_into_the_convolution(kind: str) -> None:
    model, shape = FOLDED[kind]
    _unsettle_norms(model)
    network = network_of(model, torch.randn(shape))
    names = operators(simplify(network.module))
    assert len(names) == 2 and names[0].startswith("conv") and names[1] == "add"
    assert worst_error(network, host()) < 1e-5


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 8, 3)),
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.BatchNorm2d(8)),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 4, 2, groups=2), nn.BatchNorm2d(4)),
        Twice(),
    ],
)
def test_other_norms_become_one_scale_and_shift(model: nn.Module) -> None:
    _unsettle_norms(model)
    network = network_of(model, torch.randn(2, 3, 9, 9))
    names = operators(simplify(network.module))
    assert "batch_norm" not in names and names.count("multiply") == 1
    assert worst_error(network, host()) < 1e-5


def test_clips_and_weight_transposes_disappear() -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU6(), nn.Linear(5, 4), nn.Hardtanh())
    network = network_of(model, torch.randn(3, 6))
    assert "permute_dims" in operators(network.module)
    names = operators(simplify(network.module))
    assert not {"permute_dims", "clip"} & set(names)
    assert names.count("maximum") == names.count("minimum") == 2
    assert worst_error(network, host()) < 1e-5


def test_squares_are_products() -> None:
    class Square(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.square() + x**3

    network = network_of(Square(), torch.randn(3, 6))
    names = operators(simplify(network.module))
    assert names.count("power") == 1 and names.count("multiply") == 1
    assert worst_error(network, host()) < 1e-5


def test_simplifying_twice_changes_nothing() -> None:
    import_tvm()
    import tvm_ffi

    model, shape = FOLDED["biased"]
    once = simplify(network_of(model, torch.randn(shape)).module)
    assert tvm_ffi.structural_equal(once, simplify(once))


def test_an_index_out_of_range_stays_inside_the_table() -> None:
    tvm = import_tvm()
    network = network_of(nn.Embedding(5, 8), torch.zeros(3, dtype=torch.long))
    built = tvm.compile(prepare(network.module, host()), tvm.target.Target(json.loads(host())))
    machine = tvm.relax.VirtualMachine(built, tvm.cpu())
    rows = [
        machine["main"](tvm.runtime.tensor(np.array([0, 4, last])))[0].numpy()
        for last in (4, 10**9)
    ]
    assert np.array_equal(rows[0], rows[1])


class Masked(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        size = x.shape[-1]
        return x @ x / 8.0 + torch.full((size, size), -4.0).triu(1)


def test_a_causal_mask_is_a_constant() -> None:
    """Left in the graph, its `where` is fused beside the product, where TVM's CPU rules raise."""
    network = network_of(Masked(), torch.rand(2, 16, 16))
    assert "where" not in operators(simplify(network.module))
    assert worst_error(network, host()) < 1e-5
    (task,) = tasks_of(network, host())
    assert len(task_space(task.module, Target.from_json(host())).sketches) == 3


@pytest.mark.parametrize(
    ("pool", "shape"),
    [
        (nn.AvgPool2d(640, ceil_mode=True), (1, 4, 7, 5)),
        (nn.AvgPool2d((640, 2), ceil_mode=True), (1, 4, 7, 5)),
        (nn.MaxPool2d(640, ceil_mode=True), (1, 4, 7, 5)),
        (nn.AvgPool2d(9, ceil_mode=True, padding=1), (1, 4, 7, 7)),
    ],
)
def test_a_window_is_no_larger_than_what_it_reads(pool: nn.Module, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    network = network_of(pool, torch.randn(shape))
    assert worst_error(network, host()) < 1e-6
    windows: list[int] = []

    def look(node: object) -> None:
        if isinstance(node, relax.Call) and "pool2d" in node.op.name:
            windows.extend(int(extent) for extent in node.attrs.pool_size)
            windows.extend(int(stride) for stride in node.attrs.strides)

    relax = import_tvm().relax
    relax.analysis.post_order_visit(simplify(network.module)["main"], look)
    assert max(windows) <= 9
