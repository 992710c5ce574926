"""No string of an archive's graph runs code: each is refused before torch reads it."""

from __future__ import annotations

import contextlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tensorese.workloads import NetworkError, load_network
from tensorese.workloads.pt2_graph import check_json
from workload_support import export

pytestmark = pytest.mark.tvm

GRAPH = "models/model.json"
WEIGHTS = "data/weights/model_weights_config.json"


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": torch.nn.functional.gelu(self.inner(x), approximate="tanh")}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "net.pt2"
    torch.export.save(export(Named(), torch.randn(2, 4)), str(path))
    return path


def changed(source: Path, member: str, change: Callable[[Any], object]) -> Path:
    """A copy whose JSON member went through `change`."""
    path = source.with_name("changed.pt2")
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith(member):
                value = json.loads(data)
                change(value)
                data = json.dumps(value).encode()
            new.writestr(name, data)
    return path


def bomb(marker: Path) -> str:
    return f"__import__('pathlib').Path({str(marker)!r}).touch()"


def guard(graph: Any, code: str) -> None:
    graph["guards_code"] = [f"{code} is None or True"]


def extent(graph: Any, code: Any) -> None:
    meta = graph["graph_module"]["graph"]["tensor_values"]["x"]
    meta["sizes"][0] = {"as_expr": {"expr_str": code, "hint": {"as_int": 2}}}


def listed_extent(graph: Any, code: str) -> None:
    extent(graph, [code])


def node_name(graph: Any, code: str) -> None:
    """torch overrides what its source generator would make of an input's name."""
    text = json.dumps(graph["graph_module"])
    graph["graph_module"] = json.loads(text.replace('"x"', json.dumps(f"x={code}")))


def argument_name(graph: Any, code: str) -> None:
    entry = graph["graph_module"]["module_call_graph"][0]["signature"]
    entry["forward_arg_names"] = [f"x={code}"]


def operator(graph: Any, _: str) -> None:
    graph["graph_module"]["graph"]["nodes"][0]["target"] = "torch.hub.load"


def file_operator(graph: Any, _: str) -> None:
    graph["graph_module"]["graph"]["nodes"][0]["target"] = "torch.ops.aten.from_file.default"


def container(graph: Any, _: str) -> None:
    entry = graph["graph_module"]["module_call_graph"][0]["signature"]
    context = {"default_factory_module": "antigravity", "default_factory_name": "x"}
    tree = {"type": "collections.defaultdict", "context": json.dumps(context), "children_spec": []}
    entry["out_spec"] = json.dumps([1, tree])


def enum_key(graph: Any, _: str) -> None:
    entry = graph["graph_module"]["module_call_graph"][0]["signature"]
    context = json.dumps([{"__enum__": True, "fqn": "antigravity:x", "name": "y"}])
    entry["out_spec"] = json.dumps(
        [1, {"type": "builtins.dict", "context": context, "children_spec": []}]
    )


def custom_object(graph: Any, _: str) -> None:
    values = {"obj": {"name": "obj", "class_fqn": "a.B"}}
    graph["graph_module"]["graph"]["custom_obj_values"] = values


ATTACKS = (
    guard,
    extent,
    listed_extent,
    node_name,
    argument_name,
    operator,
    file_operator,
    container,
    enum_key,
    custom_object,
)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_a_graph_that_could_run_code_is_refused(
    attack: Callable[[Any, str], None], archive: Path, tmp_path: Path
) -> None:
    marker = tmp_path / "ran"
    path = changed(archive, GRAPH, lambda graph: attack(graph, bomb(marker)))
    with pytest.raises(NetworkError, match="integers, plain names and operators"):
        load_network(path)
    assert not marker.exists()


def test_extents_of_weights_are_checked_too(archive: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"

    def change(config: Any) -> None:
        meta = config["config"]["inner.weight"]["tensor_meta"]
        meta["sizes"][0] = {"as_expr": {"expr_str": bomb(marker)}}

    with pytest.raises(NetworkError, match="expr_str"):
        load_network(changed(archive, WEIGHTS, change))
    assert not marker.exists()


@pytest.mark.parametrize("attack", [guard, extent, node_name], ids=lambda a: a.__name__)
def test_torch_alone_would_have_run_it(
    attack: Callable[[Any, str], None], archive: Path, tmp_path: Path
) -> None:
    marker = tmp_path / "ran"
    path = changed(archive, GRAPH, lambda graph: attack(graph, bomb(marker)))
    with contextlib.suppress(Exception):  # what it makes of the result does not matter
        torch.export.load(path).module()(torch.randn(2, 4))
    assert marker.exists()


@pytest.mark.parametrize(
    "guards", ["L['x'].size()[0] == 2 and not L['x'].stride()[1] > 3*(2 + 1)", "True", ""]
)
def test_comparisons_of_extents_are_no_code(guards: str) -> None:
    assert not check_json("net.pt2", json.dumps({"guards_code": [guards]}).encode())


@pytest.mark.parametrize("guards", ["x()", "L['x'].data", "2**9**9", "1" * 40 + "!", "[L]"])
def test_anything_else_in_a_guard_is(guards: str) -> None:
    with pytest.raises(NetworkError, match="guards_code"):
        check_json("net.pt2", json.dumps({"guards_code": [guards]}).encode())


def test_a_damaged_graph_is_said_to_be(archive: Path) -> None:
    def change(graph: Any) -> None:
        graph["graph_module"]["module_call_graph"][0]["signature"]["in_spec"] = "{"

    with pytest.raises(NetworkError, match="damaged: its graph is unreadable"):
        load_network(changed(archive, GRAPH, change))


def test_an_untouched_archive_is_read(archive: Path) -> None:
    assert load_network(changed(archive, GRAPH, lambda _: None)).name == "changed"
