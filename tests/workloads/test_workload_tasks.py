from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from tensorese.identity import structure_of, workload_of
from tensorese.targets import Target
from tensorese.tvm_env import import_tvm
from tensorese.workloads import Network, NetworkError, load_network, prepare, tasks_of
from tensorese.workloads.tasks import _check_lowered
from workload_support import host, network_of

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def resnet() -> Network:
    return load_network("zoo:resnet18@1x3x64x64")


def test_resnet18_has_the_tasks_one_would_ship(resnet: Network) -> None:
    tasks = tasks_of(resnet, host())
    convolutions = [task for task in tasks if task.operator == "conv2d"]
    assert sum(task.weight for task in convolutions) == 20
    # Every norm and activation is inside a convolution, and no tensor is moved between them.
    assert {task.operator for task in tasks} == {"conv2d", "dense", "pool", "reduce", "copy"}
    assert sum(task.weight for task in tasks if task.operator == "copy") == 2
    assert all(task.name.startswith("conv2d_add") for task in convolutions)
    assert [t.weight * t.flops for t in tasks] == sorted(
        (t.weight * t.flops for t in tasks), reverse=True
    )


def test_ids_are_those_of_the_farm_and_distinct(resnet: Network) -> None:
    tasks = tasks_of(resnet, host())
    assert len({task.workload.id for task in tasks}) == len(tasks)
    for task in tasks:
        assert task.workload.id == workload_of(task.module).id
        assert task.workload.key == structure_of(task.module)
        assert json.loads(task.target)["kind"] == "llvm"
    again = [task.workload.id for task in tasks_of(resnet, host())]
    assert again == [task.workload.id for task in tasks]


def test_flops_are_twice_the_published_multiply_adds() -> None:
    tasks = tasks_of(load_network("zoo:resnet18"), host())
    total = sum(task.weight * task.flops for task in tasks)
    # Beside 1.814 G multiply-adds: biases, activations, pools and the padding's comparisons.
    assert 2 * 1.814e9 <= total <= 1.01 * 2 * 1.814e9


def test_weights_are_free_for_relayout_on_cpus_only(resnet: Network) -> None:
    cuda = tasks_of(resnet, Target.parse("cuda:a100").to_json())
    cpu = tasks_of(resnet, host())
    attribute = "layout_free_buffers"
    assert not any(attribute in task.module["main"].attrs for task in cuda)
    heavy = [task for task in cpu if task.operator in ("conv2d", "dense")]
    assert all(1 in list(task.module["main"].attrs[attribute]) for task in heavy)
    assert [task.operator for task in cuda] == [task.operator for task in cpu]


def test_deploy_finds_the_records_of_these_tasks() -> None:
    """A schedule stored for a task's module is the one TVM applies to the prepared network."""
    tvm = import_tvm()
    from tvm.s_tir import meta_schedule as ms

    model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())
    network, target = network_of(model, torch.randn(4, 16)), host()
    tvm_target = tvm.target.Target(json.loads(target))
    database = ms.database.MemoryDatabase()
    tasks = tasks_of(network, target)
    for task in tasks:
        schedule = tvm.s_tir.Schedule(task.module)
        loops = schedule.get_loops(schedule.get_sblock("T_add"))
        schedule.annotate(loops[0], "pragma_found", 1)
        workload = database.commit_workload(task.module)
        record = ms.database.TuningRecord(schedule.trace, workload, [1.0], tvm_target)
        database.commit_tuning_record(record)
    with tvm_target, database:
        applied = tvm.relax.transform.MetaScheduleApplyDatabase()(prepare(network.module, target))
    assert len(tasks) == 2 and applied.script().count("pragma_found") == 2


def test_an_operator_left_over_is_named(resnet: Network) -> None:
    with pytest.raises(NetworkError, match=r"cannot lower .*relax.nn.conv2d.*, which m uses"):
        _check_lowered(import_tvm(), "m", resnet.module["main"])


class _Sorts(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, places = torch.topk(torch.relu(x), 4)
        return values.cumsum(-1), places


def test_a_sort_and_a_scan_are_tasks_with_nothing_to_decide() -> None:
    exported = torch.export.export(_Sorts().eval(), (torch.zeros(8, 64),))
    found = {t.name: t for t in tasks_of(load_network(exported), Target.parse("host").to_json())}
    assert {"topk", "cumsum"} <= found.keys()
    assert "topk" in found["topk"].workload.operator
