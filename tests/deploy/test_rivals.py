"""The other systems: torch and onnxruntime on ONNX files, and contenders that fail or die."""

from __future__ import annotations

import importlib.util
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy_support import small_network
from tensorese.deploy import DeployError
from tensorese.deploy.arena import Arena
from tensorese.deploy.systems import System, is_onnx, onnx_path, quick
from tensorese.tvm_env import import_tvm

pytestmark = pytest.mark.tvm


def onnx_file(path: Path, *extra: Any) -> Path:
    """A convolution with uneven pads, a norm, pools, a join and a classifier."""
    onnx = pytest.importorskip("onnx")
    make = onnx.helper.make_node
    random = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> Any:
        array = random.uniform(0.2, 0.6, shape).astype(np.float32)
        return onnx.numpy_helper.from_array(array, name)

    stored = [weight("w", 4, 3, 3, 3), weight("b", 4), weight("head", 8, 8), weight("hb", 8)]
    stored += [weight(name, 4) for name in ("scale", "shift", "mean", "variance")]
    stored.append(onnx.numpy_helper.from_array(np.array([1, -1], np.int64), "flat"))
    nodes = [
        make("Conv", ["x", "w", "b"], ["c"], pads=[1, 0, 2, 1], strides=[2, 2]),
        make("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["n"]),
        make("Relu", ["n"], ["r"]),
        make("MaxPool", ["r"], ["p"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1]),
        make("Concat", ["r", "p"], ["j"], axis=1),
        make("GlobalAveragePool", ["j"], ["g"]),
        make("Reshape", ["g", "flat"], ["f"]),
        make("Gemm", ["f", "head", "hb"], ["h"], transB=1),
        *extra,
        make("Softmax", ["h"], ["y"], axis=1),
    ]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "net",
        [value("x", onnx.TensorProto.FLOAT, [1, 3, 12, 12])],
        [value("y", onnx.TensorProto.FLOAT, [1, 8])],
        stored,
    )
    opsets = [onnx.helper.make_opsetid("", 13)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


def example() -> list[Any]:
    return [np.random.default_rng(2).standard_normal((1, 3, 12, 12), np.float32)]


def test_torch_runs_an_onnx_graph_as_onnxruntime_does(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    import_tvm()
    path = str(onnx_file(tmp_path / "net.onnx"))
    got, want = (
        System({"kind": kind, "model": path, "threads": 1}, example()).outputs()[0]
        for kind in ("torch", "onnxruntime")
    )
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
    assert want.std() > 1e-4


def test_onnxruntime_runs_an_exported_torch_program(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = str(small_network(tmp_path / "net.pt2"))
    inputs = [np.random.default_rng(2).standard_normal((1, 3, 16, 16), np.float32)]
    got, want = (
        System({"kind": kind, "model": path, "threads": 1}, inputs).outputs()
        for kind in ("onnxruntime", "torch")
    )
    assert len(got) == len(want) == 2
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_openvino_and_torchs_compiler_agree_with_torch(tmp_path: Path) -> None:
    path = str(small_network(tmp_path / "net.pt2"))
    inputs = [np.random.default_rng(2).standard_normal((1, 3, 16, 16), np.float32)]
    kinds = ["torch.compile", *(["openvino"] if importlib.util.find_spec("openvino") else [])]
    specs = {kind: {"kind": kind, "model": path} for kind in ("torch", *kinds)}
    with Arena(tmp_path, [inputs], 1) as arena:
        arena.add_rivals(specs)
        assert arena.absent == {}
        want = arena.outputs("torch")
        for kind in kinds:
            for one, other in zip(arena.outputs(kind), want, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
            assert arena.first[kind] < 1.0  # compiled before it is first timed


def test_openvino_takes_a_network_with_an_input_that_nothing_reads(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    onnx = pytest.importorskip("onnx")
    path = onnx_file(tmp_path / "net.onnx")
    model = onnx.load(str(path))
    unread = onnx.helper.make_tensor_value_info("unread", onnx.TensorProto.FLOAT, [2])
    model.graph.input.insert(0, unread)
    onnx.save(model, str(path))
    arrays = [np.zeros(2, np.float32), *example()]
    got, want = (
        System({"kind": kind, "model": str(path), "threads": 1}, arrays).outputs()[0]
        for kind in ("openvino", "onnxruntime")
    )
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


def test_a_rival_that_is_not_installed_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(onnx_file(tmp_path / "net.onnx"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert quick() == ["torch"]
    with pytest.raises(ImportError, match="not installed: pip install openvino"):
        System({"kind": "openvino", "model": path, "threads": 1}, example())


def test_a_rival_that_cannot_take_part_says_why(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    odd = onnx.helper.make_node("Celu", ["h"], ["z"])
    path = str(onnx_file(tmp_path / "net.onnx", odd))
    with Arena(tmp_path, [example()], 1) as arena:
        arena.add("torch", {"kind": "torch", "model": path}, optional=True)
        assert arena.contenders == {} and "has no Celu" in arena.absent["torch"]
        with pytest.raises(DeployError, match="torch failed"):
            arena.add("torch", {"kind": "torch", "model": path})


def test_a_contender_that_dies_is_told_by_name(tmp_path: Path) -> None:
    path = str(onnx_file(tmp_path / "net.onnx"))
    with Arena(tmp_path, [example()], 1) as arena:
        arena.add("torch", {"kind": "torch", "model": path})
        rows = arena.time(2, 0.01)
        assert rows["torch"]["runs"] >= 6 and rows["torch"]["latency"] > 0
        process = arena.contenders["torch"]._process
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with pytest.raises(DeployError, match=r"torch died \(exit code -9\)"):
            arena.time(1, 0.01)


def test_shapes_after_the_file_name_are_no_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.touch()
    assert is_onnx(f"{path}@1x3x8x8") and is_onnx(str(path)) and not is_onnx("zoo:resnet18")
    assert onnx_path(f"{path}@1x3x8x8") == path


def test_a_module_that_takes_its_inputs_by_name_has_an_onnx_rival(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    import torch

    from tensorese.workloads.from_torch import exported

    class Named(torch.nn.Module):
        def forward(self, *, first: Any, second: Any) -> dict[str, Any]:
            return {"sum": first + second, "less": first - second}

    arrays = [np.full((2, 3), 5.0, np.float32), np.full((2, 3), 3.0, np.float32)]
    tensors = dict(zip(("first", "second"), map(torch.from_numpy, arrays), strict=True))
    path = tmp_path / "named.pt2"
    torch.export.save(exported(Named().eval(), tensors), path)
    system = System({"kind": "onnxruntime", "model": str(path), "threads": 1}, arrays)
    total, difference = system.outputs()
    np.testing.assert_array_equal(total, np.full((2, 3), 8.0))
    np.testing.assert_array_equal(difference, np.full((2, 3), 2.0))
