"""Winograd's convolutions compute what the direct ones do, and are chosen where they pay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tensorese.tvm_env import import_tvm
from tensorese.workloads import prepare, tasks_of
from tensorese.workloads import winograd as module_winograd
from tensorese.workloads.winograd import best_tile
from tensorese.workloads.winograd_kernels import (
    is_transform,
    transform_schedule,
    transformed_weight,
)
from workload_support import host, network_of

pytestmark = pytest.mark.tvm


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut: everything a transform is fused with."""

    def __init__(self, channels: int, padding: int = 1) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=padding)
        self.shortcut = padding == 1

    def forward(self, x: Any) -> Any:
        y = self.second(torch.relu(self.first(x)))
        return torch.relu(y + x) if self.shortcut else torch.relu(y)


def _network(height: int, width: int, channels: int = 16, padding: int = 1) -> Any:
    torch.manual_seed(0)
    return network_of(Block(channels, padding), torch.randn(2, channels, height, width))


@pytest.fixture(params=[2, 4])
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Every convolution that can be is transformed, with this tile."""
    m = int(request.param)
    monkeypatch.setattr(module_winograd, "best_tile", lambda shape, channels: m)
    return m


def _scheduled(module: Any) -> Any:
    """The transforms as they are deployed, everything else as it was."""
    tvm = import_tvm()
    made = {}
    for var, function in module.functions.items():
        if isinstance(function, tvm.tirx.PrimFunc):
            alone = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
            if is_transform(alone):
                function = transform_schedule(alone)["main"].without_attr("global_symbol")
        made[var] = function
    return tvm.IRModule(made)


def _outputs(network: Any, module: Any) -> np.ndarray:
    tvm = import_tvm()
    built = tvm.compile(module, tvm.target.Target(json.loads(host())))
    machine = tvm.relax.VirtualMachine(built, tvm.cpu())
    (output,) = machine["main"](*map(tvm.runtime.tensor, network.example(0)))
    return output.numpy()


@pytest.mark.parametrize(
    ("height", "width", "padding"),
    [pytest.param(8, 8, 1, marks=pytest.mark.slow), (7, 10, 1), (13, 5, 0)],
)
def test_it_computes_the_convolution(tile: int, height: int, width: int, padding: int) -> None:
    network = _network(height, width, padding=padding)
    prepared = prepare(network.module, host(), winograd=True)
    (want,) = network.reference(network.example(0))
    for module in (prepared, _scheduled(prepared)):
        error = np.abs(_outputs(network, module) - want).max() / np.abs(want).max()
        assert error < 1e-5


def test_an_output_takes_what_follows_and_an_input_stays_alone(tile: int) -> None:
    tvm = import_tvm()
    prepared = prepare(_network(8, 8).module, host(), winograd=True)
    names = [v.name_hint for v, f in prepared.functions.items() if isinstance(f, tvm.tirx.PrimFunc)]
    transforms = sorted(name for name in names if "winograd" in name)
    assert len(transforms) == 3  # the inputs of both convolutions are one kernel
    assert sum("winograd_output" in name and "relu" in name for name in transforms) == 2
    assert any(name.startswith("winograd_input") for name in transforms)


def test_its_products_are_tasks_and_its_transforms_are_not(tile: int) -> None:
    tasks = tasks_of(_network(8, 8), host(), winograd=True)
    found = [(task.operator, task.weight) for task in tasks if task.operator != "copy"]
    assert found == [("batch_matmul", 2)]


def test_the_schedule_vectorises_and_unrolls_every_window(tile: int) -> None:
    tvm = import_tvm()
    prepared = prepare(_network(8, 8).module, host(), winograd=True)
    for function in prepared.functions.values():
        if not isinstance(function, tvm.tirx.PrimFunc):
            continue
        alone = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
        if is_transform(alone):
            script = transform_schedule(alone).script()
            assert "T.parallel" in script and "T.vectorized" in script and "T.unroll" in script


@pytest.mark.parametrize(
    "convolution",
    [
        nn.Conv2d(16, 16, 3, stride=2),
        nn.Conv2d(16, 16, 3, dilation=2),
        nn.Conv2d(16, 16, 3, groups=2),
        nn.Conv2d(16, 16, 5),
        nn.Conv2d(16, 12, 3),
        nn.Conv2d(16, 16, 1),
    ],
    ids=["strided", "dilated", "grouped", "5x5", "odd-channels", "1x1"],
)
def test_other_convolutions_stay(tile: int, convolution: nn.Conv2d) -> None:
    network = network_of(convolution, torch.randn(1, 16, 12, 12))
    for task in tasks_of(network, host(), winograd=True):
        assert task.operator != "batch_matmul"


def test_it_is_for_cpus_and_on_demand() -> None:
    network = _network(56, 56, 64)
    assert _operators(tasks_of(network, host())) == {"conv2d"}
    assert _operators(tasks_of(network, host(), winograd=True)) == {"batch_matmul"}


def _operators(tasks: list[Any]) -> set[str]:
    return {task.operator for task in tasks} - {"copy"}


def test_where_it_pays() -> None:
    assert best_tile((1, 56, 56, 64), 64) == 4  # large images: few weights, many products
    assert best_tile((1, 7, 7, 512), 512) == 0  # small ones: the weights' way is what takes time
    assert best_tile((1, 56, 56, 8), 8) == 0  # few channels: moving costs more than multiplying


def test_weights_are_transformed_exactly() -> None:
    weight = np.zeros((3, 3, 1, 1))
    weight[1, 1] = 1  # the identity
    signal = np.arange(16.0).reshape(4, 4)
    b = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
    a = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])
    u = transformed_weight(weight, 2).reshape(4, 4)
    assert np.allclose(a @ (u * (b @ signal @ b.T)) @ a.T, signal[1:3, 1:3])


def test_run_folders_of_before_are_compiled_as_they_were_tuned(tmp_path: Path) -> None:
    from tensorese.deploy.folder import read_run

    head = {"model": "m", "network": "n", "target": "{}", "platform": "p", "tasks": []}
    (tmp_path / "run.json").write_text(json.dumps(head))
    assert not read_run(tmp_path).winograd
    (tmp_path / "run.json").write_text(json.dumps({**head, "config": {"winograd": True}}))
    assert read_run(tmp_path).winograd
