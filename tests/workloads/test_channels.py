from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tensorese.targets import Target
from tensorese.tvm_env import import_tvm
from tensorese.workloads import tasks_of
from tensorese.workloads.channels import carry_channels
from tensorese.workloads.joined_channels import Run, runs
from tensorese.workloads.prepare import prepare
from workload_support import host, network_of, worst_error

pytestmark = pytest.mark.tvm


def shuffled(x: Tensor, groups: int = 2) -> Tensor:
    n, c, h, w = x.shape
    return x.view(n, groups, c // groups, h, w).transpose(1, 2).reshape(n, c, h, w)


class Unit(nn.Module):
    """Half of the channels pass, the others are changed, both are mixed."""

    def __init__(self, half: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(half, half, 1)
        self.depthwise = nn.Conv2d(half, half, 3, padding=1, groups=half)
        self.last = nn.Conv2d(half, half, 1)

    def forward(self, x: Tensor) -> Tensor:
        passed, changed = x.chunk(2, 1)
        changed = self.last(self.depthwise(self.first(changed).relu())).relu()
        return shuffled(torch.cat([passed, changed], 1))


class Units(nn.Module):
    def __init__(self, channels: int, units: int, *, read: bool = False) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.units = nn.Sequential(*(Unit(channels // 2) for _ in range(units)))
        self.wide = nn.Conv2d(channels, channels, 3, 2, 1, groups=channels)
        self.long, self.short = nn.Conv2d(channels, 8, 1), nn.Conv2d(channels, 8, 1)
        self.scale = nn.Parameter(torch.randn(1, channels, 1, 1))
        self.read = read

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = self.units(self.stem(x))
        wide = (self.wide(x).relu() * self.scale + 1).relu()
        made = self.long(wide), self.short(x)
        return (*made, x.sigmoid()) if self.read else made


class Grouped(nn.Module):
    """ShuffleNet's first form: between convolutions of groups."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(12, 12, 1, groups=3)
        self.depthwise = nn.Conv2d(12, 12, 3, 2, 1, groups=12)
        self.last = nn.Conv2d(12, 12, 1, groups=3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.depthwise(shuffled(self.first(x).relu(), 3)))


def kernels(model: nn.Module, *inputs: Tensor) -> list[str]:
    """What the prepared network calls, in no order."""
    prepared = prepare(network_of(model, *inputs).module, host())
    return sorted(var.name_hint for var in prepared.get_global_vars() if var.name_hint != "main")


@pytest.mark.parametrize(("channels", "units", "copies"), [(12, 1, 1), (30, 3, 4)])
def test_shuffles_are_not_computed(channels: int, units: int, copies: int) -> None:
    network = network_of(Units(channels, units), torch.randn(2, 3, 9, 9))
    assert worst_error(network, host()) < 1e-5
    tuned = [task.name for task in tasks_of(network, host()) if task.operator == "copy"]
    assert not any("reshape" in name or "concatenate" in name for name in tuned)
    # Where tensors meet, before every unit but the first and after the last, and where the first
    # is cut from a convolution that got filters of zeros.
    names = kernels(Units(channels, units), torch.randn(2, 3, 9, 9))
    assert sum("joined_channels" in name for name in names) == copies


def test_filters_fill_whole_vectors_where_only_channels_are_read() -> None:
    inputs = torch.randn(1, 3, 6, 6)
    shapes = [
        prepare(network_of(Units(30, 1, read=read), inputs).module, host()).script(show_meta=False)
        for read in (False, True)
    ]
    assert "(1, 6, 6, 32)" in shapes[0] and "(1, 6, 6, 16)" in shapes[0]
    assert "(1, 6, 6, 32)" not in shapes[1] and "(1, 6, 6, 15)" in shapes[1]


def test_what_somebody_else_reads_is_there_in_order() -> None:
    network = network_of(Units(12, 2, read=True), torch.randn(1, 3, 6, 6))
    assert worst_error(network, host()) < 1e-5


def test_a_shuffle_goes_behind_a_depthwise_convolution() -> None:
    """Where that has a stride fewer pixels are moved."""
    network = network_of(Grouped(), torch.randn(1, 12, 8, 8))
    assert worst_error(network, host()) < 1e-5
    text = prepare(network.module, host()).script(show_meta=False)
    joined = text.partition("def joined_channels")[2].partition("def ")[0]
    assert "(1, 4, 4, 12)" in joined and "(1, 8, 8, 12)" not in joined


def test_other_parts_are_left_alone() -> None:
    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Conv2d(4, 15, 1), nn.Conv2d(15, 3, 1)

        def forward(self, x: Tensor) -> Tensor:
            left, right = x.chunk(2, 1)
            return self.two(self.one(torch.cat([right, left], 1)))

    module = network_of(Cut(), torch.randn(1, 4, 5, 5)).module
    assert carry_channels(module) is module


def test_a_gpu_has_no_such_kernel() -> None:
    network = network_of(Units(12, 1), torch.randn(1, 3, 6, 6))
    tvm = import_tvm("cuda")
    assert tvm is not None
    prepared = prepare(network.module, Target.parse("cuda:a100").to_json())
    assert "joined_channels" not in prepared.script(show_meta=False)


def test_neighbours_are_one_run() -> None:
    def run(source: int, begin: int, to: int, every: int, length: int) -> Run:
        return Run(source=source, begin=begin, to=to, every=every, length=length)

    assert runs([0, 0, 1, 1, 1], [2, 3, 0, 1, 2]) == [run(0, 2, 0, 1, 2), run(1, 0, 2, 1, 3)]
    assert runs([0] * 6, [0, 3, 1, 4, 2, 5]) == [run(0, 0, 0, 2, 3), run(0, 3, 1, 2, 3)]
    assert runs([0, 0, 0], [2, 1, 0]) == [run(0, at, 2 - at, 1, 1) for at in range(3)]


class Joined(nn.Module):
    """Nothing, an activation behind the join, or a sum of images before it is TVM's to fuse."""

    def __init__(self, fused: str) -> None:
        super().__init__()
        self.left, self.right = nn.Conv2d(3, 5, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
        self.last, self.fused = nn.Conv2d(8, 16, 1), fused

    def forward(self, x: Tensor) -> Tensor:
        right = x + x.flip(3) if self.fused == "before" else self.right(x)
        both = torch.cat([self.left(x).relu(), right], 1)
        return self.last(both.relu() if self.fused == "behind" else both)


@pytest.mark.parametrize("fused", ["", "before", "behind"])
def test_a_join_is_copied_unless_something_is_fused_with_it(fused: str) -> None:
    model = Joined(fused)
    network = network_of(model, torch.randn(2, 3, 7, 7))
    assert worst_error(network, host()) < 1e-5
    tuned = [task.name for task in tasks_of(network, host())]
    assert any("concatenate" in name for name in tuned) == bool(fused)
    joined = any("joined_channels" in name for name in kernels(model, torch.randn(2, 3, 7, 7)))
    assert joined != bool(fused)


def test_a_reshape_of_a_part_is_no_shuffle() -> None:
    class Parts(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            left, right = x.chunk(2, 1)
            return left.flatten(1) + right.flatten(1)

    module = network_of(Parts(), torch.randn(1, 4, 5, 5)).module
    assert carry_channels(module) is module
