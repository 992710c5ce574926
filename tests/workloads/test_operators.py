from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tensorese.workloads import tasks_of
from workload_support import host, network_of

pytestmark = pytest.mark.tvm


class Call(nn.Module):
    """A function of torch as a module."""

    def __init__(self, name: str, **options: int) -> None:
        super().__init__()
        self.name, self.options = name, options

    def forward(self, *x: Tensor) -> Tensor:
        function = getattr(torch, self.name)
        return function(*x, **self.options)  # type: ignore[no-any-return]


IMAGE = (1, 8, 12, 12)
CASES: dict[str, tuple[nn.Module, list[tuple[int, ...]]]] = {
    "conv1d": (nn.Conv1d(8, 4, 3), [(1, 8, 12)]),
    "conv2d": (nn.Conv2d(8, 4, 3, padding=1), [IMAGE]),
    "conv2d ": (nn.Conv2d(8, 4, 1, stride=2), [IMAGE]),
    "conv2d  ": (nn.Conv2d(8, 1, 3, dilation=2), [IMAGE]),
    "depthwise_conv2d": (nn.Conv2d(8, 8, 3, groups=8), [IMAGE]),
    "depthwise_conv2d ": (nn.Conv2d(8, 16, 3, groups=8), [IMAGE]),
    "grouped_conv2d": (nn.Conv2d(8, 16, 3, groups=2), [IMAGE]),
    "conv3d": (nn.Conv3d(8, 4, 3), [(1, 8, 5, 5, 5)]),
    "conv2d_transpose": (nn.ConvTranspose2d(8, 4, 4, 2, 1), [IMAGE]),
    "dense": (nn.Linear(8, 4), [(3, 8)]),
    "dense ": (nn.Linear(8, 4), [(2, 3, 8)]),
    "batch_matmul": (Call("matmul"), [(2, 3, 5, 6), (2, 3, 6, 7)]),
    "softmax": (nn.Softmax(-1), [(4, 9)]),
    "norm": (nn.LayerNorm(16), [(4, 16)]),
    "norm ": (nn.GroupNorm(2, 8), [IMAGE]),
    "pool": (nn.MaxPool2d(3, 2), [IMAGE]),
    "pool ": (nn.AvgPool2d(2), [IMAGE]),
    "pool  ": (nn.AdaptiveAvgPool2d(5), [IMAGE]),  # windows of 3 and of 4
    "reduce": (Call("mean", dim=1), [(4, 9)]),
    "reduce ": (Call("argmax", dim=1), [(4, 9)]),
    "elementwise": (nn.GELU(), [(4, 9)]),
    "copy": (Call("transpose", dim0=0, dim1=1), [(4, 9)]),
    "copy ": (Call("flip", dims=(1,)), [(4, 9)]),
}


@pytest.mark.parametrize("case", CASES)
def test_the_class_is_read_from_the_loops(case: str) -> None:
    model, shapes = CASES[case]
    network = network_of(model, *(torch.randn(shape) for shape in shapes))
    found = [task.operator for task in tasks_of(network, host())]
    moves = ("copy", "elementwise")  # of layout, and a bias that could not be fused
    assert [name for name in found if name not in moves] == [case.strip()] or (
        case.strip() in moves and found == [case.strip()]
    )


def test_embeddings_gather() -> None:
    network = network_of(nn.Embedding(50, 8), torch.zeros(2, 7, dtype=torch.long))
    # The ids are narrowed to 32 bits first; the reshapes around the gather are views.
    assert [task.operator for task in tasks_of(network, host())] == ["elementwise", "gather"]
