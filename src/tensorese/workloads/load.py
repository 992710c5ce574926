"""From what a user names to a network: a file, `zoo:NAME[@shape]`, or an exported program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tensorese.workloads import from_onnx, from_torch, pt2, zoo
from tensorese.workloads.errors import ModelError
from tensorese.workloads.network import Input, Network, parse_extents


def load_network(spec: Any) -> Network:
    """`zoo:NAME[@shape]`, `FILE.onnx[@shapes]`, `FILE.pt2`, or a `torch.export.ExportedProgram`.

    Shapes are `1x3x224x224`, or `ids=1x128,mask=1x128` where several inputs have open ones.
    """
    if not isinstance(spec, str | Path):
        return from_torch.network_of(spec, name="exported")
    text = str(spec)
    if text.startswith("zoo:"):
        return _from_zoo(text.removeprefix("zoo:"))
    path, shapes = _split(text)
    kind = _kind(path)
    if kind == "onnx":
        return from_onnx.network_of(path, shapes)
    if shapes:
        raise ModelError(f"'@' gives shapes to .onnx files only, but got {text!r}; export anew")
    return from_torch.network_of(pt2.load(path), name=path.stem)


def _from_zoo(text: str) -> Network:
    import torch

    name, shape = zoo.parse(text)
    entry = zoo.ZOO[name]
    example = zoo.example_input(name, shape)
    with torch.no_grad():
        program = torch.export.export(zoo.build(name), (example,))
    return from_torch.network_of(program, name=name, below=entry.vocabulary)


def _split(text: str) -> tuple[Path, dict[str, tuple[int, ...]]]:
    """A path, and the shapes after its last `@` unless the `@` belongs to the name."""
    base, at, given = text.rpartition("@")
    if not at or Path(text).exists():
        return Path(text), {}
    shapes = {}
    for part in given.split(","):
        name, _, extents = part.rpartition("=")
        shapes[name] = parse_extents(extents, f"{base}@1x3x224x224")
    return Path(base), shapes


def _kind(path: Path) -> str:
    """By content, not by name: a renamed pickle stays a pickle."""
    if not path.is_file():
        near = "; a network of the zoo is named zoo:NAME" if "." not in path.name else ""
        raise ModelError(f"a model must be a file or zoo:NAME, but {str(path)!r} is none{near}")
    with path.open("rb") as file:
        start = file.read(4)
    if start.startswith(b"PK\x03\x04"):
        return "pt2"
    if start.startswith(b"\x80") or path.suffix in (".pt", ".pth", ".pkl", ".bin"):
        raise ModelError(f"{path} {pt2.PICKLE_REFUSED}")
    return "onnx"


__all__ = ["Input", "Network", "load_network"]
