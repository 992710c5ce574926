from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorese.workloads import NetworkError, load_network, tasks_of
from workload_support import host, light_network, worst_error

onnx = pytest.importorskip("onnx", reason="needs the extra `onnx`")
from onnx_support import floats, model_of, node  # noqa: E402
from test_onnx_plain import choice  # noqa: E402

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
    with pytest.raises(NetworkError, match=r"open\.onnx .* 'x' is Nx4; for example: --shape x=1x4"):
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
    with pytest.raises(NetworkError) as caught:
        load_network(f"{path}{given}")
    assert says in str(caught.value)


def test_an_at_sign_may_be_part_of_a_name(tmp_path: Path) -> None:
    assert load_network(gemm(tmp_path / "a@2x4")).inputs[0].spec.shape == (2, 4)


def test_an_unsupported_operator_is_named(tmp_path: Path) -> None:
    path = gemm(tmp_path / "odd.onnx", operator="Frobnicate", domain="custom")
    with pytest.raises(NetworkError, match="Frobnicate is of domain 'custom'"):
        load_network(path)


def test_onnx_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NetworkError, match=r"pip install 'tensorese\[onnx\]'"):
        load_network(gemm(tmp_path / "m.onnx"))


OPERATORS = {
    "LSTM": ("x w r", {"x": (3, 2, 4)}, {"w": (1, 20, 4), "r": (1, 20, 5)}, {"hidden_size": 5}),
    "Einsum": ("x w", {"x": (2, 3)}, {"w": (3, 4)}, {"equation": "ij,jk->ki"}),
    "HardSigmoid": ("x", {"x": (2, 3)}, {}, {}),
    "ConvTranspose": (
        "x w",
        {"x": (1, 2, 5, 4)},
        {"w": (2, 3, 3, 3)},
        {"strides": [2, 2], "pads": [1, 0, 1, 0], "output_padding": [1, 0]},
    ),
    "GatherElements": ("x i", {"x": (3, 3)}, {"i": np.array([[0, 2], [1, 1]])}, {"axis": 1}),
    "GatherND": ("x i", {"x": (3, 4, 2)}, {"i": np.array([[0, 2], [1, -1]])}, {}),
    "ScatterElements": (
        "x i w",
        {"x": (3, 3)},
        {"i": np.array([[0, 2], [1, 1]]), "w": (2, 2)},
        {"axis": 0},
    ),
    "Pad": ("x p v", {"x": (2, 3)}, {"p": np.array([0, 1, 1, 2]), "v": np.float32(0.5)}, {}),
    "Resize": (
        "x - - s",
        {"x": (1, 2, 5, 4)},
        {"s": np.array([1, 2, 7, 9])},
        {"mode": "linear"},
    ),
}


@pytest.mark.parametrize("operator", list(OPERATORS))
def test_an_operator_agrees_with_onnxruntime(operator: str, tmp_path: Path) -> None:
    names, inputs, weights, attributes = OPERATORS[operator]
    arrays = {n: s if isinstance(s, np.generic | np.ndarray) else floats(*s, seed=1)
              for n, s in weights.items()}  # fmt: skip
    one = node(operator, names, **attributes)
    model = model_of([one], {n: floats(*s) for n, s in inputs.items()}, arrays)
    onnx.save(model, str(tmp_path / "m.onnx"))
    assert worst_error(load_network(tmp_path / "m.onnx"), host()) < 1e-5


def test_the_largest_are_right_and_sorted(tmp_path: Path) -> None:
    model = model_of(
        [node("TopK", "x k", "y i")], {"x": floats(3, 8)}, {"k": np.array([4])}, ["y", "i"]
    )
    onnx.save(model, str(tmp_path / "m.onnx"))
    assert worst_error(load_network(tmp_path / "m.onnx"), host()) < 1e-6


def test_a_fixed_value_is_part_of_the_source(tmp_path: Path) -> None:
    """A run folder names the model by `source`: what was fixed must be in it."""
    inputs = {"x": floats(2, 3), "rate": np.array(0)}
    nodes = [node("Equal", "rate want", "c"), choice("c")]
    weights = {"want": np.array(16000)}
    path = tmp_path / "m.onnx"
    onnx.save(model_of(nodes, inputs, weights, shapes={"x": ["n", 3]}), str(path))
    network = load_network(path, dims={"n": 2}, values={"rate": 16000})
    assert network.source == f"{path}@x=2x3,rate:=16000"
    again = load_network(network.source)
    assert [one.name for one in again.inputs] == ["x"]
    assert worst_error(again, host()) < 1e-6
    (want,) = again.reference([inputs["x"]])
    assert np.array_equal(want, np.maximum(inputs["x"], 0))


def test_a_quantised_network_is_computed_in_float_and_says_so(tmp_path: Path) -> None:
    nodes = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z")]
    weights = {"s": np.float32(0.1), "z": np.uint8(0)}
    model = model_of(nodes, {"x": floats(2, 3)}, {n: np.asarray(a) for n, a in weights.items()})
    onnx.save(model, str(tmp_path / "m.onnx"))
    network = load_network(tmp_path / "m.onnx")
    assert "computed in float" in network.notes[0]
    assert worst_error(network, host()) < 1e-6
    x = np.float32([[-1, 0.123, 2], [0, 0, 0]])
    assert np.allclose(network.reference([x]), np.maximum(x, 0))
