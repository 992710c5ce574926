"""A mask stays out of the product to whose sums it is added: with it, there is no schedule."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor, nn

from tensorese.space.space import task_space
from tensorese.targets import Target
from tensorese.workloads import tasks_of
from workload_support import host, network_of, worst_error

pytestmark = pytest.mark.tvm


class Masked(nn.Module):
    def forward(self, q: Tensor, k: Tensor, seen: Tensor) -> Tensor:
        mask = torch.where(seen > 0, 0.0, -1e9)
        return q @ k.transpose(1, 2) + mask


def test_every_task_of_a_masked_product_has_a_space() -> None:
    network = network_of(Masked(), torch.randn(2, 8, 4), torch.randn(2, 8, 4), torch.randn(8, 8))
    tasks = tasks_of(network, host())
    assert {task.operator for task in tasks} >= {"batch_matmul"}
    assert len(tasks) >= 2 and all("where_matmul" not in task.name for task in tasks)
    assert all(task_space(task.module, Target.from_json(task.target)).sketches for task in tasks)
    assert worst_error(network, host()) < 1e-5


def test_what_reads_the_product_is_still_fused() -> None:
    class Relu6(nn.Module):
        def forward(self, q: Tensor, k: Tensor) -> Tensor:
            return torch.where(q @ k > 1.0, 1.0, q @ k)

    network = network_of(Relu6(), torch.randn(8, 8), torch.randn(8, 8))
    assert [task.name for task in tasks_of(network, host()) if "where" in task.name] != ["where"]


def test_a_gpu_keeps_the_fused_form() -> None:
    network = network_of(Masked(), torch.randn(2, 8, 4), torch.randn(2, 8, 4), torch.randn(8, 8))
    cuda = json.dumps({"kind": "cuda", "arch": "sm_80", "max_threads_per_block": 1024})
    assert len(tasks_of(network, cuda)) < len(tasks_of(network, host()))
