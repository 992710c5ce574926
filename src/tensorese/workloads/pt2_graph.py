"""Checks the graph of a `torch.export` archive before torch reads it: it must not hold code.

torch evaluates strings of `models/model.json` as Python: guards with `exec`, symbolic extents with
sympy's `eval`, names of nodes and arguments as part of the source it generates for the graph; and
it imports what a container type names. Every string is therefore held to what an export without
dynamic shapes writes there, and whatever is not known is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from tensorese.workloads.errors import NetworkError

_NAME = re.compile(r"[A-Za-z_]\w*|")
_DOTTED = re.compile(r"[\w.\-+:/@ ]*")  # parameters, modules, versions: neither quotes nor brackets
_EXTENT = re.compile(r"-?\d+|[su]\d+")
_OPERATOR = re.compile(
    r"torch\.ops\.(aten|prims)\.(?!from_file\b|save\b)\w+\.\w+"  # these two touch files
    r"|torch\.ops\.higher_order\.wrap_with_(set_grad_enabled|autocast)"
)
_GUARD = re.compile(
    r"(?:L(?:\['\w+'\]|\[\d+\])+(?:\.(?:size|stride)\(\)\[\d+\])?"
    r"|\d++|\b(?:and|or|not|True|False)\b|[<>=!]=|[<>]|//|\*(?!\*)|[-+/%()]|\s)*"
)
_CONTAINERS = (None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict")
_REGISTERED = "transformers.modeling_outputs."
"""Outputs of a package that registers them with torch when it is imported."""
_METADATA = {"stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "custom", "from_node"}
_NEVER = {"custom_obj", "as_custom_obj", "class_fqn"}  # objects that torch unpickles


class _Refused(Exception):
    """`field` of the graph holds `value`."""

    def __init__(self, field: str, value: object) -> None:
        super().__init__(f"{field} = {str(value)[:60]!r}")


def check_json(path: object, text: bytes) -> bool:
    """Raises for a member that could run code; True when its outputs need `transformers`."""
    try:
        _check(json.loads(text), "model")
        return _REGISTERED in text.decode()
    except _Refused as error:
        raise NetworkError(
            f"{path} is refused: a graph may hold integers, plain names and operators of torch.ops "
            f"only, since torch would run the rest, but it has {error}; "
            "export it anew, without dynamic_shapes and custom objects"
        ) from None
    except (ValueError, TypeError, RecursionError):
        raise NetworkError(f"{path} is damaged: its graph is unreadable; export it again") from None


def _check(value: Any, field: str) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            if not _DOTTED.fullmatch(key) or (key in _NEVER):
                raise _Refused(field, key)
            if key == "metadata" and isinstance(inner, dict):
                _check_metadata(inner)
            elif key == "custom_obj_values" and inner:
                raise _Refused(key, inner)
            else:
                _check(inner, key)
    elif isinstance(value, list):
        for inner in value:
            _check(inner, field)
    elif field == "expr_str" and not isinstance(value, str):
        raise _Refused(field, value)
    elif isinstance(value, str) and not _RULES.get(field, _is_dotted)(value):
        raise _Refused(field, value)


def _check_metadata(metadata: dict[str, Any]) -> None:
    """Where a node came from, for people; torch looks names up in it but calls nothing."""
    for key, inner in metadata.items():
        if key not in _METADATA or not isinstance(inner, str):
            raise _Refused("metadata", key)


def _is_name(value: str) -> bool:
    return bool(_NAME.fullmatch(value))


def _is_dotted(value: str) -> bool:
    return bool(_DOTTED.fullmatch(value))


def _is_operator(value: str) -> bool:
    return bool(_OPERATOR.fullmatch(value))


def _is_containers(value: str) -> bool:
    """How inputs and outputs are nested: plain containers, with plain names as keys."""
    version, tree = json.loads(value)
    return isinstance(version, int) and _is_tree(tree)


def _is_tree(tree: Any) -> bool:
    if not isinstance(tree, dict) or tree.keys() != {"type", "context", "children_spec"}:
        return False
    kind, context = tree["type"], tree["context"]
    known = kind in _CONTAINERS or (isinstance(kind, str) and kind.startswith(_REGISTERED))
    keys = json.loads(context) if isinstance(context, str) else context
    plain = keys is None or (
        isinstance(keys, list) and all(isinstance(key, str) and _is_name(key) for key in keys)
    )
    return known and plain and all(map(_is_tree, tree["children_spec"]))


_RULES: dict[str, Callable[[str], bool]] = {
    "guards_code": lambda value: bool(_GUARD.fullmatch(value)),
    "expr_str": lambda value: bool(_EXTENT.fullmatch(value)),
    "target": _is_operator,
    "as_operator": _is_operator,
    "in_spec": _is_containers,
    "out_spec": _is_containers,
    "name": _is_name,
    "as_name": _is_name,
    "forward_arg_names": _is_name,
    "as_string": str.isprintable,  # an operator's argument, which torch quotes
    "as_strings": str.isprintable,
}
