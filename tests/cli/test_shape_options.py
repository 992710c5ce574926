from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from tensorese.cli import run
from tensorese.cli.shape_options import fixed_by
from tensorese.workloads import NetworkError

onnx = pytest.importorskip("onnx", reason="needs the extra `onnx`")
pytestmark = pytest.mark.tvm


def open_model(folder: Path) -> Path:
    """x [batch, 4] @ w [4, 3]"""
    make = onnx.helper
    weight = onnx.numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
    graph = make.make_graph(
        [make.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [make.make_tensor_value_info("x", 1, ["batch", 4])],
        [make.make_tensor_value_info("y", 1, ["batch", 3])],
        [weight],
    )
    path = folder / "m.onnx"
    opsets = [make.make_opsetid("", 17)]
    onnx.save(make.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


@pytest.mark.parametrize(
    "options",
    [["--shape", "x=2x4"], ["--shape", "x = 2x4"], ["--shape", "2x4"], ["--dim", "batch=2"]],
)
def test_options_close_an_open_shape(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tasks", str(open_model(tmp_path)), "--no-space", "--json", *options]) == 0
    (task,) = json.loads(capsys.readouterr().out)["tasks"]
    assert task["shapes"] == ["2x4", "4x3", "2x3"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "--shape x=1x4"),
        (["--shape", "z=2x4"], "no input 'z'"),
        (["--shape", "x=2x4x1"], "is batchx4, but got 2x4x1"),
        (["--shape", "x=ax4"], "positive integers joined by 'x'"),
        (["--dim", "bacth=2"], "did you mean 'batch'?"),
        (["--dim", "batch=2x3"], "a dimension must be one positive integer"),
        (["--dim", "batch"], "a dimension must be one positive integer"),
        (["--dim", "batch=3", "--shape", "x=2x4"], "is batchx4 by --dim batch=3, but got 2x4"),
        (["--shape", "x=1x4", "--shape", "x=2x4"], "once for 'x', but got 1x4 and 2x4"),
        (["--value", "x=much"], "a value must be a number"),
    ],
)
def test_wrong_options_are_one_line(
    options: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tasks", str(open_model(tmp_path)), *options]) == 2
    text = capsys.readouterr().err
    assert says in text and len(text.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "typed", [["tasks", "--no-space"], ["tune", "--trials", "1", "--out", "a run"]]
)
def test_the_command_that_was_typed_is_shown_with_what_it_lacks(
    typed: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    open_model(tmp_path).rename("my model.onnx")
    verb, *options = typed
    assert run([verb, "my model.onnx", *options]) == 2
    said, _, example = capsys.readouterr().err.strip().partition("; for example: ")
    assert said == "tensorese: every input shape of my model.onnx must be fixed, but 'x' is batchx4"
    pasted = shlex.split(example)
    assert pasted == ["tensorese", verb, "my model.onnx", *options, "--shape", "x=1x4"]
    assert verb == "tune" or run(pasted[1:]) == 0


def test_tune_has_them_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "run"), "--trials", "1"]
    assert run(["tune", str(open_model(tmp_path)), "--dim", "bacth=2", *out]) == 2
    assert "did you mean 'batch'?" in capsys.readouterr().err


def test_other_models_take_no_such_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tasks", "zoo:resnet18", "--shape", "x=1x3x64x64"]) == 2
    assert "are for .onnx files" in capsys.readouterr().err


def test_names_may_hold_an_equals_sign() -> None:
    assert fixed_by(["a=b=1x2"], [], ["r=0.5/2"]) == {
        "shapes": {"a=b": (1, 2)},
        "dims": {},
        "values": {"r": (0.5, 2)},
    }
    with pytest.raises(NetworkError):
        fixed_by([], ["batch"], [])


def test_braces_are_several_shapes() -> None:
    fixed = fixed_by(["x=1x{32,64}", "y=2x2"], ["n={3,4}"], [])
    assert fixed["shapes"] == {"x": [(1, 32), (1, 64)], "y": (2, 2)}
    assert fixed["dims"] == {"n": [3, 4]}


def test_the_tasks_of_several_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(open_model(tmp_path))
    assert run(["tasks", model, "--no-space", "--json", "--shape", "x={2,5}x4"]) == 0
    tasks = json.loads(capsys.readouterr().out)["tasks"]
    assert {task["shapes"][0] for task in tasks} == {"2x4", "5x4"}
