"""One library for several shapes: each verified, picked by its inputs, weights stored once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy_support import make_run
from tensorese.deploy import DeployError, Library, bench_run, compile_run, load
from tensorese.deploy import compile as compiling
from tensorese.deploy.compile import Timing
from tensorese.deploy.explain import sum_of_tasks
from tensorese.deploy.folder import read_run
from tensorese.deploy.library import ShapedLibrary
from tensorese.deploy.prepare import prepare_shapes

onnx = pytest.importorskip("onnx", reason="needs the extra `onnx`")
pytestmark = pytest.mark.tvm

QUICK = Timing(rounds=1, secs=0.02)
WIDTH = 512


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """x [batch, WIDTH] looked up by no table, times a weight of a megabyte; y is its relu."""
    make = onnx.helper
    weight = np.random.default_rng(0).standard_normal((WIDTH, WIDTH), np.float32)
    graph = make.make_graph(
        [make.make_node("MatMul", ["x", "w"], ["h"]), make.make_node("Relu", ["h"], ["y"])],
        "g",
        [make.make_tensor_value_info("x", 1, ["batch", WIDTH])],
        [make.make_tensor_value_info("y", 1, ["batch", WIDTH])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    path = tmp_path_factory.mktemp("model") / "open.onnx"
    opsets = [make.make_opsetid("", 17)]
    onnx.save(make.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


@pytest.fixture(autouse=True)
def no_rivals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "quick", lambda: [])


@pytest.fixture(scope="module")
def run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights in the network's own order: schedules may want one each."""
    folder = tmp_path_factory.mktemp("run") / "run"
    make_run(folder, Path(f"{model}@x={{2,4}}x{WIDTH}"), prepack=False)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compiling, "quick", lambda: [])
        compile_run(folder, timing=QUICK)
    return folder


def example(n: int) -> Any:
    return np.random.default_rng(n).standard_normal((n, WIDTH), np.float32)


def weight_of(model: Path) -> Any:
    return onnx.numpy_helper.to_array(onnx.load(str(model)).graph.initializer[0])


def test_each_shape_is_computed_and_picked_by_the_inputs(run: Path, model: Path) -> None:
    library = load(run)
    assert isinstance(library, ShapedLibrary) and len(library.shapes) == 2
    for n in (4, 2, 4):
        x = example(n)
        wanted = np.maximum(x @ weight_of(model), 0)
        assert np.allclose(library(x), wanted, atol=1e-3)
        assert np.allclose(library(x=x), wanted, atol=1e-3)


def test_another_shape_is_refused_with_those_it_takes(run: Path) -> None:
    with pytest.raises(DeployError, match=r"2x512\) or \(x: 4x512\), but got \(3x512\)"):
        load(run)(example(3))
    with pytest.raises(DeployError, match=r"one of the shapes .* but got \(scalar\)"):
        load(run)("no array")


def test_weights_are_stored_once(run: Path) -> None:
    size = (run / "library.so").stat().st_size
    assert WIDTH * WIDTH * 4 < size < 1.5 * WIDTH * WIDTH * 4


def test_the_certificate_lists_the_shapes_and_what_was_verified(run: Path) -> None:
    certificate = json.loads((run / "certificate.json").read_text())
    assert [row["entry"] for row in certificate["signatures"]] == ["main_0", "main_1"]
    assert [row["inputs"][0]["shape"][0] for row in certificate["signatures"]] == [2, 4]
    assert [row["shape"] for row in certificate["shapes"]] == [f"x: {n}x512" for n in (2, 4)]
    assert certificate["model"].endswith("@x={2,4}x512")
    for row in certificate["shapes"]:
        assert row["verification"]["against"]["untuned"]["passed"]
        assert row["latency"]["tuned"]["latency"] > 0 and row["kernels"]
        assert all(kernel["promised"] for kernel in row["kernels"])


def test_a_shapes_tasks_are_its_own(run: Path) -> None:
    builts = prepare_shapes(read_run(run), lambda _: None)
    assert [sum(task["weight"] for task in one.run.tasks) for one in builts] == [1, 1]
    assert [round(sum_of_tasks(one.run), 7) for one in builts] == [1e-5] * 2


@pytest.mark.slow
def test_all_are_timed_again(run: Path) -> None:
    result = bench_run(run, timing=QUICK, unpacked=True)
    assert [set(row["latency"]) for row in result["shapes"]] == [
        {"tuned", "untuned", "unpacked"}
    ] * 2


def test_a_wrong_kernel_is_replaced_and_all_shapes_are_verified_again(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second shape's kernel writes zeros; the library is built anew for all."""
    folder = make_run(tmp_path / "run", Path(f"{model}@x={{2,4}}x{WIDTH}"))
    looked: list[str] = []
    original, broken = compiling.verify, [True]

    def verify(built: Any, arena: Any) -> Any:
        looked.append(built.entry)
        if built.entry == "main_1" and broken.pop():
            broken.append(False)
            (id_,) = (t["workload"] for t in built.run.tasks if t["weight"])
            raise compiling.WrongKernel("made up to be wrong", id_, 1.0)
        if not broken:
            broken.append(False)
        return original(built, arena)

    monkeypatch.setattr(compiling, "verify", verify)
    certificate = compile_run(folder, timing=QUICK)
    assert looked == ["main_0", "main_1", "main_1", "main_0"]
    assert [len(row["verification"]["replaced"]) for row in certificate["shapes"]] == [1, 1]
    assert len(certificate["tasks"]["untuned"]) == 1
    assert len(load(folder).shapes) == 2  # type: ignore[union-attr]


def test_nothing_is_timed_and_all_are_verified(model: Path, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", Path(f"{model}@x={{2,4}}x{WIDTH}"))
    certificate = compile_run(folder, timed=False)
    assert "latency" not in certificate
    assert all(
        any(v["passed"] for v in row["verification"]["against"].values())
        for row in certificate["shapes"]
    )


def test_a_library_for_elsewhere_lists_its_shapes(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "why_not_here", lambda target: "made up")
    folder = make_run(tmp_path / "run", Path(f"{model}@x={{2,4}}x{WIDTH}"))
    certificate = compile_run(folder)
    assert [row["verification"]["skipped"] for row in certificate["shapes"]] == ["made up"] * 2


def test_one_shape_is_a_library_as_ever(model: Path, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", Path(f"{model}@x=2x{WIDTH}"))
    certificate = compile_run(folder, timing=QUICK)
    assert "signatures" not in certificate and "shapes" not in certificate
    assert isinstance(load(folder), Library)
