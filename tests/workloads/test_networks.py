"""Every network of the zoo, imported and compiled untuned, against torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorese.targets import Target
from tensorese.workloads import load_network, tasks_of, zoo
from workload_support import host, light_network, worst_error

pytestmark = pytest.mark.tvm

# Small inputs: the graphs and operators are those of the published shapes.
QUICK = {
    "resnet18": "1x3x32x32",
    "mobilenet_v3_small": "1x3x32x32",
    "dcgan": "1x100x1x1",
    "bert_tiny": "2x16",
}
SLOW = {
    "resnet50": "2x3x64x64",
    "resnext50_32x4d": "1x3x64x64",
    "wide_resnet50_2": "1x3x64x64",
    "mobilenet_v2": "1x3x64x64",
    "mobilenet_v3_large": "1x3x64x64",
    "mnasnet1_0": "1x3x64x64",
    "efficientnet_b0": "1x3x64x64",
    "regnet_x_400mf": "1x3x64x64",
    "squeezenet1_1": "1x3x64x64",
    "deit_tiny": "1x3x64x64",
    "deit_small": "2x3x48x48",
    "densenet121": "1x3x64x64",
    "inception_v3": "1x3x107x107",
    "vgg16": "1x3x64x64",
    "r3d_18": "1x3x8x32x32",
    "bert_mini": "1x32",
    "bert_medium": "1x32",
    "bert_base": "1x32",
    "bert_large": "1x16",
    "gpt2": "1x32",
    "llama_12l": "1x32",
}
LIGHT = ("resnet50", "densenet121", "inception_v1", "inception_v2", "shufflenet")


def test_every_network_is_checked() -> None:
    assert QUICK.keys() | SLOW.keys() == zoo.ZOO.keys()


@pytest.mark.parametrize("name", QUICK)
def test_small_networks_agree_with_torch(name: str) -> None:
    assert worst_error(load_network(f"zoo:{name}@{QUICK[name]}"), host()) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_other_networks_agree_with_torch(name: str) -> None:
    assert worst_error(load_network(f"zoo:{name}@{SLOW[name]}"), host()) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.ZOO)
@pytest.mark.parametrize("target", ["host", "cuda:a100"])
def test_every_network_lists_its_tasks_at_the_published_shape(name: str, target: str) -> None:
    tasks = tasks_of(load_network(f"zoo:{name}"), Target.parse(target).to_json())
    assert tasks and all(task.weight >= 1 for task in tasks)
    assert len({task.workload.id for task in tasks}) == len(tasks)


@pytest.mark.slow
@pytest.mark.parametrize("name", LIGHT)
def test_light_onnx_networks_agree_with_their_source(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnx's own evaluator needs minutes a network")
    assert worst_error(load_network(light_network(name, tmp_path)), host()) < 1e-3
