"""Several shapes of one network: how they are named, read, and put into one module."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensorese.targets import Target
from tensorese.workloads import NetworkError, load_variants, merged, prepare, source_of_all
from tensorese.workloads.tasks import tasks_of, tasks_of_all
from tensorese.workloads.variants import braced, expand

onnx = pytest.importorskip("onnx", reason="needs the extra `onnx`")


@pytest.mark.null
@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("zoo:bert_tiny", ["zoo:bert_tiny"]),
        ("zoo:bert_tiny@1x{32,64}", ["zoo:bert_tiny@1x32", "zoo:bert_tiny@1x64"]),
        ("m@a=1x{3,4},b={5,6}x1", ["m@a=1x3,b=5x1", "m@a=1x4,b=6x1"]),
    ],
)
def test_braces_vary_together_and_back(text: str, texts: list[str]) -> None:
    assert expand(text) == texts
    assert braced(texts) == text


@pytest.mark.null
@pytest.mark.parametrize("text", ["m@{1,2}x{3,4,5}", "m@1x{32,}", "m@1x{}"])
def test_braces_that_do_not_fit_are_refused(text: str) -> None:
    with pytest.raises(NetworkError, match="braces must list as many values each"):
        expand(text)


@pytest.mark.null
def test_a_file_may_have_braces_in_its_name(tmp_path: Path) -> None:
    path = tmp_path / "a{1,2}.onnx"
    path.write_text("")
    assert expand(str(path)) == [str(path)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two inputs of one open length: the sum of x @ w and y."""
    make = onnx.helper
    weight = onnx.numpy_helper.from_array(np.ones((4, 4), np.float32), "w")
    graph = make.make_graph(
        [make.make_node("MatMul", ["x", "w"], ["h"]), make.make_node("Add", ["h", "y"], ["z"])],
        "g",
        [make.make_tensor_value_info(name, 1, ["n", 4]) for name in "xy"],
        [make.make_tensor_value_info("z", 1, ["n", 4])],
        [weight],
    )
    path = tmp_path_factory.mktemp("model") / "m.onnx"
    opsets = [make.make_opsetid("", 17)]
    onnx.save(make.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


@pytest.mark.tvm
def test_lists_of_shapes_or_of_a_dimension_are_networks(model: Path) -> None:
    by_shape = load_variants(model, shapes={"x": [(2, 4), (3, 4)], "y": [(2, 4), (3, 4)]})
    by_dim = load_variants(model, dims={"n": [2, 3]})
    for networks in (by_shape, by_dim):
        assert [one.inputs[0].spec.shape for one in networks] == [(2, 4), (3, 4)]
        assert source_of_all(networks) == f"{model}@x={{2,3}}x4,y={{2,3}}x4"
    again = load_variants(source_of_all(by_dim))
    assert [one.source for one in again] == [one.source for one in by_dim]
    assert len(load_variants(model, dims={"n": 2})) == 1


@pytest.mark.tvm
def test_shapes_that_cannot_be_one_library_are_refused(model: Path) -> None:
    with pytest.raises(NetworkError, match="as many shapes"):
        load_variants(model, shapes={"x": [(2, 4), (3, 4)], "y": [(2, 4), (3, 4), (4, 4)]})
    with pytest.raises(NetworkError, match="every shape must be given once"):
        load_variants(model, dims={"n": [2, 2]})


@pytest.mark.tvm
def test_tasks_in_common_are_there_once(model: Path) -> None:
    target = Target.parse("host").to_json()
    networks = load_variants(model, dims={"n": [2, 3]})
    together = {task.workload.id: task.weight for task in tasks_of_all(networks, target)}
    each = [{t.workload.id: t.weight for t in tasks_of(one, target)} for one in networks]
    assert together == {**each[0], **each[1]}
    twice = tasks_of_all([networks[0], networks[0]], target)
    assert {t.workload.id: t.weight for t in twice} == {id_: 2 * w for id_, w in each[0].items()}


@pytest.mark.tvm
def test_a_merged_module_has_an_entry_a_shape_and_equal_kernels_once(model: Path) -> None:
    target = Target.parse("host").to_json()
    modules = [prepare(one.module, target) for one in load_variants(model, dims={"n": [2, 3]})]
    names = {str(var.name_hint) for var in merged(modules).functions}
    assert {"main_0", "main_1"} <= names and len(names) == 4
    same = {str(var.name_hint) for var in merged([modules[0], modules[0]]).functions}
    assert len(same) == 3
    assert merged(modules[:1]) is modules[0]
