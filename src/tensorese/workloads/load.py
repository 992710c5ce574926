"""From what a user names to a network: a file, `zoo:NAME[@shape]`, or an exported program."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorese.workloads import from_onnx, from_torch, pt2, zoo
from tensorese.workloads.errors import NetworkError
from tensorese.workloads.network import Input, Network, parse_extents
from tensorese.workloads.onnx_graph import Fixed

_VALUE = ":="


def load_network(
    spec: Any,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    values: Mapping[str, float | Sequence[float]] | None = None,
) -> Network:
    """`zoo:NAME[@shape]`, `FILE.onnx[@shapes]`, `FILE.pt2`, or a `torch.export.ExportedProgram`.

    Shapes are `1x3x224x224`, or `ids=1x128,mask=1x128` where several inputs have open ones. The
    same by name for .onnx files: `shapes` of inputs, `dims` that the file names, and `values` of
    inputs that become constants (`rate:=16000` after the `@`).
    """
    options = Fixed(
        shapes={name: tuple(shape) for name, shape in (shapes or {}).items()},
        dims=dict(dims or {}),
        values={name: _numbers(value) for name, value in (values or {}).items()},
    )
    if not isinstance(spec, str | Path):
        _refuse(options, "an exported program")
        return from_torch.network_of(spec, name="exported")
    text = str(spec)
    if text.startswith("zoo:"):
        _refuse(options, text)
        return dataclasses.replace(_from_zoo(text.removeprefix("zoo:")), source=text)
    path, fixed = split_spec(text)
    kind = _kind(path)
    if kind == "onnx":
        return _from_onnx(path, _joined(fixed, options))
    if fixed or options:
        raise NetworkError(f"shapes are given to .onnx files only, but got {text!r}; export anew")
    return dataclasses.replace(from_torch.network_of(pt2.load(path), name=path.stem), source=text)


def _from_onnx(path: Path, fixed: Fixed) -> Network:
    network = from_onnx.network_of(path, fixed)
    if not fixed:
        return dataclasses.replace(network, source=str(path))
    parts = [f"{one.name}={'x'.join(map(str, one.spec.shape))}" for one in network.inputs]
    parts = [part for part in parts if not part.endswith("=")]  # a scalar has no extents to fix
    parts += [f"{n}{_VALUE}{'/'.join(f'{v:g}' for v in vs)}" for n, vs in fixed.values.items()]
    return dataclasses.replace(network, source=f"{path}@{','.join(parts)}")


def _joined(fixed: Fixed, options: Fixed) -> Fixed:
    """What stands behind the `@` and the options' values; an option wins."""
    return Fixed(
        shapes={**fixed.shapes, **options.shapes},
        dims=options.dims,
        values={**fixed.values, **options.values},
    )


def _refuse(options: Fixed, what: str) -> None:
    if options:
        raise NetworkError(
            f"--shape, --dim and --value are for .onnx files, but the model is {what}"
        )


def _numbers(value: float | Sequence[float]) -> tuple[float, ...]:
    return tuple(value) if isinstance(value, Sequence) else (value,)


def _from_zoo(text: str) -> Network:
    import torch

    name, shape = zoo.parse(text)
    entry = zoo.ZOO[name]
    example = zoo.example_input(name, shape)
    with torch.no_grad():
        program = torch.export.export(zoo.build(name), (example,))
    return from_torch.network_of(program, name=name, below=entry.vocabulary)


def split_spec(text: str) -> tuple[Path, Fixed]:
    """A path, and what stands after its last `@` unless the `@` belongs to the name."""
    base, at, options = text.rpartition("@")
    if not at or Path(text).exists():
        return Path(text), Fixed()
    shapes, values = {}, {}
    for part in options.split(","):
        if _VALUE in part:
            name, _, numbers = part.rpartition(_VALUE)
            values[name] = parse_value(numbers, f"{base}@NAME{_VALUE}16000")
        else:
            name, _, extents = part.rpartition("=")
            shapes[name] = parse_extents(extents, f"{base}@1x3x224x224")
    return Path(base), Fixed(shapes=shapes, values=values)


def parse_value(text: str, example: str) -> tuple[float, ...]:
    """`16000`, or one number for each element: `0.5/2`."""
    try:
        return tuple(
            int(part) if part.lstrip("-").isdigit() else float(part) for part in text.split("/")
        )
    except ValueError:
        rule = "a value must be a number, or numbers joined by '/'"
        raise NetworkError(f"{rule}, but got {text!r}; for example {example}") from None


def _kind(path: Path) -> str:
    """By content, not by name: a renamed pickle stays a pickle."""
    if not path.is_file():
        near = "; a network of the zoo is named zoo:NAME" if "." not in path.name else ""
        raise NetworkError(f"a model must be a file or zoo:NAME, but {str(path)!r} is none{near}")
    with path.open("rb") as file:
        start = file.read(4)
    if start.startswith(b"PK\x03\x04"):
        return "pt2"
    if start.startswith(b"\x80") or path.suffix in (".pt", ".pth", ".pkl", ".bin"):
        raise NetworkError(f"{path} {pt2.PICKLE_REFUSED}")
    return "onnx"


__all__ = ["Input", "Network", "load_network"]
