from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tensorese.workloads import ModelError, load_network, tasks_of
from workload_support import host, light_network, worst_error

onnx = pytest.importorskip("onnx", reason="needs the extra `onnx`")
pytestmark = pytest.mark.tvm


def gemm(path: Path, batch: int | str = 2, operator: str = "Gemm", domain: str = "") -> Path:
    """x [batch, 4] @ w [4, 3]"""
    make = onnx.helper
    kind = onnx.TensorProto.FLOAT
    weight = make.make_tensor("w", kind, [4, 3], [float(i) / 7 for i in range(12)])
    graph = make.make_graph(
        [make.make_node(operator, ["x", "w"], ["y"], domain=domain)],
        "g",
        [make.make_tensor_value_info("x", kind, [batch, 4])],
        [make.make_tensor_value_info("y", kind, [batch, 3])],
        [weight],
    )
    opsets: list[Any] = [make.make_opsetid("", 17), make.make_opsetid("custom", 1)]
    onnx.save(make.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


def test_a_file_agrees_with_its_source(tmp_path: Path) -> None:
    network = load_network(gemm(tmp_path / "m.onnx"))
    assert (network.name, network.inputs[0].name) == ("m", "x")
    assert worst_error(network, host()) < 1e-6


def test_a_light_network_agrees(tmp_path: Path) -> None:
    network = load_network(light_network("squeezenet", tmp_path))
    assert worst_error(network, host()) < 1e-4
    names = [task.operator for task in tasks_of(network, host())]
    assert names[0] == "conv2d" and set(names) <= {"conv2d", "pool", "softmax", "copy", "reduce"}


def test_norms_scales_and_sums_become_convolutions_with_bias(tmp_path: Path) -> None:
    tasks = tasks_of(load_network(light_network("resnet50", tmp_path)), host())
    heavy = [task for task in tasks if task.operator == "conv2d"]
    assert sum(task.weight for task in heavy) == 53
    assert {task.operator for task in tasks} == {"conv2d", "dense", "pool", "softmax", "copy"}


def test_open_shapes_are_given_after_the_name(tmp_path: Path) -> None:
    path = gemm(tmp_path / "open.onnx", batch="N")
    with pytest.raises(ModelError, match=r"'x' is Nx4; give it: .*open\.onnx@x=1x4"):
        load_network(path)
    for given in ("@5x4", "@x=5x4"):
        network = load_network(f"{path}{given}")
        assert network.inputs[0].spec.shape == (5, 4)
    assert worst_error(network, host()) < 1e-6


@pytest.mark.parametrize(
    ("given", "says"),
    [("@5x3", "is Nx4, but got 5x3"), ("@5", "but got 5"), ("@z=5x4", "no input 'z'"), ("@a", "x")],
)
def test_wrong_shapes_are_refused(given: str, says: str, tmp_path: Path) -> None:
    path = gemm(tmp_path / "open.onnx", batch="N")
    with pytest.raises(ModelError) as caught:
        load_network(f"{path}{given}")
    assert says in str(caught.value)


def test_an_at_sign_may_be_part_of_a_name(tmp_path: Path) -> None:
    assert load_network(gemm(tmp_path / "a@2x4")).inputs[0].spec.shape == (2, 4)


def test_an_unsupported_operator_is_named(tmp_path: Path) -> None:
    path = gemm(tmp_path / "odd.onnx", operator="Frobnicate", domain="custom")
    with pytest.raises(ModelError, match="no operator Frobnicate"):
        load_network(path)


def test_onnx_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install 'tensorese\[onnx\]'"):
        load_network(gemm(tmp_path / "m.onnx"))
