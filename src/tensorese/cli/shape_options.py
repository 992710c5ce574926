"""`--shape`, `--dim` and `--value`: what a user fixes about an ONNX file's inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
_HELP = {
    "shape": "NAME=1x3x640x640: an input's shape (.onnx); '1x{32,64}' for several.",
    "dim": "NAME=128: a dimension the file names (.onnx); '{32,64}' for several.",
    "value": "NAME=16000: an input that becomes a constant (.onnx); repeatable.",
}


def shape_options(command: Command) -> Command:
    for name, text in reversed(_HELP.items()):
        command = click.option(f"--{name}", multiple=True, metavar="NAME=...", help=text)(command)
    return command


def fixed_by(
    shapes: Sequence[str], dims: Sequence[str], values: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """The arguments of `load_variants` that these options mean."""
    from tensorese.workloads.load import parse_value
    from tensorese.workloads.network import parse_extents
    from tensorese.workloads.variants import expand

    example = "--shape NAME=1x3x224x224"
    return {
        "shapes": {
            n: _one_or_all([parse_extents(one, example) for one in expand(t)])
            for n, t in _pairs("--shape", shapes)
        },
        "dims": {
            n: _one_or_all([_extent(one) for one in expand(t)]) for n, t in _pairs("--dim", dims)
        },
        "values": {n: parse_value(t, "--value NAME=16000") for n, t in _pairs("--value", values)},
    }


def _one_or_all(alternatives: list[Any]) -> Any:
    return alternatives[0] if len(alternatives) == 1 else alternatives


def _pairs(option: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    """At the last `=`: names of inputs may hold one. A lone shape belongs to the only input."""
    split = [text.rpartition("=") for text in texts]
    pairs = [(name.strip(), rest.strip()) for name, _, rest in split]
    names = [name for name, _ in pairs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        from tensorese.workloads import NetworkError

        given = " and ".join(rest for name, rest in pairs if name == twice)
        raise NetworkError(f"{option} must be given once for {twice!r}, but got {given}")
    return pairs


def _extent(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    from tensorese.workloads import NetworkError

    raise NetworkError(
        f"a dimension must be one positive integer, but got {text!r}; for example --dim batch=1"
    )
