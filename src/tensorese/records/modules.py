"""What a serialised TVM module says about its workload, read as JSON and never through TVM.

Old databases hold a graph format that TVM 0.27 refuses; the names in it are legible all the same.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any

from tensorese.records.nouns import TensorSpec, Workload

_BLOCK_TYPES = ("s_tir.SBlock", "tirx.SBlock", "tir.Block")
_LENGTH_BYTES = 8


def decode_blob(blob: str) -> str:
    """The JSON inside a database's base64 blob: a length in 8 bytes, then the text."""
    try:
        data = base64.b64decode(blob, validate=True)
    except binascii.Error as error:
        raise ValueError("the module is not base64") from error
    return data[_LENGTH_BYTES:].decode()


def encode_blob(module: str) -> str:
    data = module.encode()
    return base64.b64encode(len(data).to_bytes(_LENGTH_BYTES, "little") + data).decode()


def block_names(graph: dict[str, Any]) -> list[str]:
    """Names of the compute blocks in program order, without the root."""
    nodes = graph["nodes"]
    names = []
    for node in nodes:
        if node.get("type", node.get("type_key")) in _BLOCK_TYPES:
            hint = node.get("data", node.get("attrs"))["name_hint"]
            names.append(_text(nodes, hint))
    return [name for name in names if name != "root"]


def _text(nodes: Sequence[dict[str, Any]], index: Any) -> str:
    node = nodes[int(index)]
    return str(node.get("data", node.get("repr_str", "")))


def is_legacy(graph: dict[str, Any]) -> bool:
    return "root_index" not in graph


def parameters(graph: dict[str, Any]) -> list[TensorSpec]:
    """Of the one function of a module, before any schedule; empty where it cannot be seen."""
    nodes = graph["nodes"]

    def inside(index: int, field: str) -> Any:
        return nodes[nodes[index]["data"][field]]

    def spec(variable: int) -> TensorSpec:
        buffer = nodes[variable]["data"]["ty"]
        extents = [inside(extent, "value")["data"] for extent in inside(buffer, "shape")["data"]]
        return TensorSpec(
            shape=tuple(int(extent) for extent in extents),
            dtype=str(inside(buffer, "dtype")["data"]["dtype"]),
        )

    functions = [at for at, node in enumerate(nodes) if node.get("type") == "tirx.PrimFunc"]
    if len(functions) != 1:
        return []
    return [spec(variable) for variable in inside(functions[0], "params")["data"]]


def workload_of_module(module: str, key: str, args: Sequence[TensorSpec]) -> Workload:
    """The one way a MetaSchedule module becomes a workload; `key` is its structural hash.

    `args` are a record's, for old graphs: weights that its schedule moved have another shape there
    than in the workload. Strides and paddings sit in index expressions, so the hash is an
    attribute: two convolutions of the same shapes stay two workloads.
    """
    graph = json.loads(module)
    legacy = is_legacy(graph)
    return Workload(
        operator="_".join(block_names(graph)) or "main",
        args=tuple(parameters(graph) or args),
        attributes={"structure": key},
        source="metaschedule-legacy" if legacy else "tvm",
        key=key,
        module="" if legacy else module,
    )
