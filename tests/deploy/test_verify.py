"""What verification sees: rounding that is none, outputs that never move, NaN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy_support import export, make_run
from tensorese.cli.compile import lines_of
from tensorese.deploy import DeployError, compile_run, load
from tensorese.deploy.apply import Kernel
from tensorese.deploy.compile import Timing
from tensorese.deploy.verdict import half_tolerance
from tensorese.tvm_env import import_tvm
from tensorese.workloads.from_torch import array_of

pytestmark = pytest.mark.tvm

QUICK = Timing(rounds=2, secs=0.02)


def half_network(path: Path, kind: str) -> Path:
    import_tvm()
    import torch
    from torch import nn

    torch.manual_seed(0)
    dtype = getattr(torch, kind)
    net = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 32)).to(dtype)
    return export(net, (torch.randn(4, 64, dtype=dtype),), path)


def scaled(factor: float) -> Any:
    """Kernels whose constant weights come out `factor` times as large."""
    right = Kernel.packed

    def packed(kernel: Kernel, arguments: list[Any]) -> list[Any]:
        tvm = import_tvm()
        made = []
        for one in right(kernel, arguments):
            if isinstance(one, tvm.ir.GenericConst) and one.value.numpy().ndim > 1:
                array = one.value.numpy()
                one = tvm.relax.const((array * factor).astype(array.dtype), str(one.ty.dtype))
            made.append(one)
        return made

    return packed


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_halves_are_judged_by_float32(kind: str, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", half_network(tmp_path / "half.pt2", kind))
    against = compile_run(run, timing=QUICK)["verification"]["against"]
    assert against.keys() == {"untuned", "torch in float32"}
    wide = against["torch in float32"]
    assert wide["passed"] and 0 < wide["max_error"] < wide["tolerance"] < 0.01
    library = load(run)
    import torch

    x = torch.randn(4, 2 * 64, dtype=getattr(torch, kind))[:, 1::2]  # strided: it is copied
    got, again = library(x), library(array_of(torch, x))
    assert str(got.dtype) == f"torch.{kind}" and again.dtype.name == kind
    assert np.array_equal(got.float().numpy(), again.astype(np.float32))


@pytest.mark.parametrize("factor", [1.01, 1.025])
def test_one_per_cent_is_refused_in_half_precision(
    factor: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", half_network(tmp_path / "half.pt2", "float16"))
    monkeypatch.setattr(Kernel, "packed", scaled(factor))
    with pytest.raises(DeployError, match="outputs must agree with"):
        compile_run(run, timing=QUICK)


@pytest.mark.null
def test_a_source_that_is_worse_excuses_as_much_and_no_more() -> None:
    assert half_tolerance(0.0075, 0.001) == 0.0075
    assert half_tolerance(0.0075, 0.02) == pytest.approx(0.03)
    assert half_tolerance(0.0075, float("inf")) == 0.0075


def test_outputs_that_say_little_are_stated(tmp_path: Path) -> None:
    import_tvm()
    import torch
    from torch import nn

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            y = self.line(x)
            return y, (y * 0.0) + 3.0, torch.sqrt(y)

    torch.manual_seed(0)
    run = make_run(tmp_path / "run", export(Odd(), (torch.randn(4, 8),), tmp_path / "odd.pt2"))
    certificate = compile_run(run, timing=QUICK)
    assert certificate["verification"]["constant"] == [1]
    assert certificate["verification"]["undefined"] == [2]
    said = lines_of(certificate)
    assert "output1 is the same for both inputs: that it agrees says little" in said
    assert "output2 holds NaN: that it agrees says little" in said


def test_given_inputs_are_verified_on(tmp_path: Path) -> None:
    import_tvm()
    import torch
    from torch import nn

    model = export(nn.Linear(8, 8), (torch.randn(4, 8),), tmp_path / "net.pt2")
    run = make_run(tmp_path / "run", model)
    np.savez(run / "example-inputs.npz", input=np.full((4, 8), 2.0, np.float32))
    checks = compile_run(run, timing=QUICK)["verification"]
    assert checks["given"] == ["input"] and checks["constant"] == [0]
    np.savez(run / "example-inputs.npz", input=np.array([object()], dtype=object))
    with pytest.raises(DeployError, match="plain arrays"):
        compile_run(run, timing=QUICK)


def test_small_probabilities_are_judged_by_an_exact_sigmoid(tmp_path: Path) -> None:
    """onnxruntime's own is off by several per cent of these."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    make, random = onnx.helper, np.random.default_rng(0)
    stored = {
        "w": 0.1 * random.standard_normal((16, 8), np.float32),
        "b": np.full(8, -14, np.float32),
    }
    graph = make.make_graph(
        [make.make_node("Gemm", ["x", "w", "b"], ["s"]), make.make_node("Sigmoid", ["s"], ["y"])],
        "g",
        [make.make_tensor_value_info("x", 1, [4, 16])],
        [make.make_tensor_value_info("y", 1, [4, 8])],
        [onnx.numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    path = tmp_path / "m.onnx"
    opsets = [make.make_opsetid("", 17)]
    onnx.save(make.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    checks = compile_run(make_run(tmp_path / "run", path), timing=QUICK)["verification"]["against"]
    exact = checks["onnxruntime with its sigmoids written out"]
    assert exact["passed"] and 0 < exact["max_error"] < 1e-4
    assert checks.keys() == {"untuned", "onnxruntime with its sigmoids written out"}
