"""The shapes of a file's inputs: fixed by the file, by a user's options, or named as open."""

from __future__ import annotations

import difflib
import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tensorese.records.nouns import TensorSpec
from tensorese.workloads.errors import NetworkError, OpenShapes
from tensorese.workloads.onnx_graph.graph import Array, Undecided
from tensorese.workloads.onnx_graph.plain import plain

_TRIES = 12


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """What a user fixes about a file's inputs."""

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By input; by "" where there is one input."""
    dims: Mapping[str, int] = field(default_factory=dict)
    """By the name a dimension has in the file."""
    values: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Inputs that become constants: one number for all elements, or one for each."""

    def __bool__(self) -> bool:
        return bool(self.shapes or self.dims or self.values)


@dataclass(frozen=True, kw_only=True)
class Settled:
    """Every input with its shape, and those whose value is fixed."""

    inputs: Mapping[str, TensorSpec]
    values: Mapping[str, Array]


@dataclass(frozen=True, kw_only=True)
class _Declared:
    """An input as the file has it: an extent, a dimension's name, or "" where it has neither."""

    name: str
    dtype: np.dtype[Any]
    extents: tuple[int | str, ...] | None

    @property
    def shape_text(self) -> str:
        if self.extents is None:
            return "of unknown rank"
        return "x".join(str(extent or "?") for extent in self.extents) or "a scalar"


def settle(model: Any, fixed: Fixed, path: Path) -> Settled:
    declared = {one.name: one for one in _declared(model)}
    shapes = _named_shapes(fixed, declared, path)
    _check_names(fixed, shapes, declared, path)
    closed = {n: _closed(one, shapes.get(n), fixed, path) for n, one in declared.items()}
    values = {n: _value(declared[n], closed[n], v, path) for n, v in fixed.values.items()}
    open_ = [name for name, shape in closed.items() if shape is None and name not in values]
    if open_:
        raise _all_open(model, [declared[n] for n in open_], declared, closed, values, path)
    inputs = {
        name: TensorSpec(shape=shape, dtype=declared[name].dtype.name)
        for name, shape in closed.items()
        if shape is not None and name not in values
    }
    return Settled(inputs=inputs, values=values)


def _declared(model: Any) -> Iterator[_Declared]:
    import onnx

    stored = {tensor.name for tensor in model.graph.initializer}
    for value in model.graph.input:
        if value.name in stored:
            continue
        tensor = value.type.tensor_type
        if not tensor.elem_type:
            raise NetworkError(f"every input must be a tensor, but {value.name!r} is none")
        extents: tuple[int | str, ...] | None = None
        if tensor.HasField("shape"):
            # Exporters write 0 and -1 for what they do not know.
            extents = tuple(
                int(dim.dim_value) if dim.dim_value > 0 else _symbol(dim.dim_param)
                for dim in tensor.shape.dim
            )
        kind = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        if kind.kind == "O":
            raise NetworkError(
                f"every input must be numbers, but {value.name!r} is text; "
                "export the network from where its text is numbers"
            )
        yield _Declared(name=value.name, dtype=kind, extents=extents)


def _symbol(name: str) -> str:
    return "" if name in ("?", "-1", "None", "unk") else name


def _named_shapes(
    fixed: Fixed, declared: Mapping[str, _Declared], path: Path
) -> dict[str, tuple[int, ...]]:
    shapes = dict(fixed.shapes)
    if "" in shapes:
        free = [name for name in declared if name not in fixed.values]
        if len(free) != 1:
            names = ", ".join(declared)
            raise NetworkError(
                f"{path} has inputs {names}: name the shape's input, e.g. --shape "
                f"{free[0] if free else 'NAME'}=1x128"
            )
        shapes[free[0]] = shapes.pop("")
    return shapes


def _check_names(
    fixed: Fixed,
    shapes: Mapping[str, tuple[int, ...]],
    declared: Mapping[str, _Declared],
    path: Path,
) -> None:
    for name in (*shapes, *fixed.values):
        if name not in declared:
            raise NetworkError(f"{path} has no input {name!r}{_near(name, declared)}")
    symbols = {
        e for one in declared.values() for e in one.extents or () if isinstance(e, str) and e
    }
    for name in fixed.dims:
        if name not in symbols:
            raise NetworkError(f"{path} has no open dimension {name!r}{_near(name, symbols)}")


def _near(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; it has {', '.join(sorted(known))}" if known else "; it has none"


def _closed(
    one: _Declared, shape: tuple[int, ...] | None, fixed: Fixed, path: Path
) -> tuple[int, ...] | None:
    """The input's shape, None where it is open."""
    if one.extents is None:
        return shape
    extents = [fixed.dims.get(e, e) if isinstance(e, str) else e for e in one.extents]
    if shape is None:
        return tuple(e for e in extents if isinstance(e, int)) if _all_known(extents) else None
    clash = [e for e, s in zip(extents, shape, strict=False) if isinstance(e, int) and e != s]
    if len(shape) != len(extents) or clash:
        got = "x".join(map(str, shape))
        fixed_dims = [f"--dim {n}={e}" for n, e in fixed.dims.items() if n in one.extents]
        by = f" by {', '.join(fixed_dims)}" if fixed_dims else ""
        raise NetworkError(f"input {one.name!r} of {path} is {one.shape_text}{by}, but got {got}")
    return shape


def _all_known(extents: Sequence[int | str]) -> bool:
    return all(isinstance(extent, int) for extent in extents)


def _value(
    one: _Declared, shape: tuple[int, ...] | None, numbers: Sequence[float], path: Path
) -> Array:
    if shape is None:
        shape = () if len(numbers) == 1 and not one.extents else (len(numbers),)
    size = int(np.prod(shape))
    if len(numbers) not in (1, size):
        raise NetworkError(
            f"input {one.name!r} of {path} has {size} elements, but --value has {len(numbers)}"
        )
    if one.dtype.kind in "iub" and any(number != int(number) for number in numbers):
        raise NetworkError(
            f"input {one.name!r} of {path} is {one.dtype}, but --value has fractions"
        )
    return np.broadcast_to(np.array(numbers, one.dtype), (size,)).reshape(shape)


# -- the message about open shapes --------------------------------------------------------------


def _all_open(
    model: Any,
    open_: Sequence[_Declared],
    declared: Mapping[str, _Declared],
    closed: Mapping[str, tuple[int, ...] | None],
    values: Mapping[str, Array],
    path: Path,
) -> OpenShapes:
    inputs = ", ".join(f"{one.name!r} is {one.shape_text}" for one in open_)
    options = _example(model, open_, declared, closed, values)
    return OpenShapes(f"every input shape of {path} must be fixed, but {inputs}", options)


def _example(
    model: Any,
    open_: Sequence[_Declared],
    declared: Mapping[str, _Declared],
    closed: Mapping[str, tuple[int, ...] | None],
    values: Mapping[str, Array],
) -> str:
    """Options that fit the network's shapes; the first guess where none fits."""
    first = ""
    for guess in itertools.islice(_guesses(open_), _TRIES):
        shapes = {**{n: s for n, s in closed.items() if s is not None}, **guess}
        fixed, value_options = dict(values), list[str]()
        for _ in range(4):
            inputs = {
                name: TensorSpec(shape=shape, dtype=declared[name].dtype.name)
                for name, shape in shapes.items()
                if name not in fixed
            }
            parts = [f"{n}={'x'.join(map(str, s))}" for n, s in guess.items() if n not in fixed]
            options = " ".join([*(f"--shape {shlex.quote(p)}" for p in parts), *value_options])
            first = first or options
            try:
                plain(model, inputs, fixed)
                return options
            except Undecided as error:
                for name, number in error.inputs.items():
                    if shapes.get(name) is not None and name not in fixed:
                        fixed[name] = np.full(shapes[name], number, declared[name].dtype)
                        value_options.append(f"--value {shlex.quote(f'{name}={number:g}')}")
            except NetworkError:
                break
    return first


_SIDES = ((224, 224), (640, 640), (48, 320), (48, 192), (32, 320), (256, 256), (64, 64), (32, 32))
_TOKENS = (128, 16, 64, 512, 256, 77, 32, 1)
_SAMPLES = (512, 16000, 576, 256, 1024, 128, 64, 1)


def _guesses(open_: Sequence[_Declared]) -> Iterator[dict[str, tuple[int, ...]]]:
    """Shapes in the order they are likely: images, then tokens or samples of sound."""
    for sides, tokens, samples in zip(_SIDES, _TOKENS, _SAMPLES, strict=True):
        lengths = {True: tokens, False: samples}
        yield {
            one.name: _guess(one, sides, lengths[one.dtype.kind in "iub" or _is_wide(one)])
            for one in open_
        }


def _is_wide(one: _Declared) -> bool:
    """A sequence of vectors, not of samples."""
    return one.extents is not None and len(one.extents) > 2


def _guess(one: _Declared, sides: tuple[int, int], length: int) -> tuple[int, ...]:
    extents = one.extents if one.extents is not None else ("", 3, "", "")
    shape: list[int] = []
    for place, extent in enumerate(extents):
        if isinstance(extent, int):
            shape.append(extent)
        elif place == 0 or "batch" in extent.lower():
            shape.append(1)
        elif len(extents) == 4:
            shape.append(sides[place - 2] if place >= 2 else 3)
        elif place == 1 and len(extents) == 3 and isinstance(extents[0], int):
            shape.append(1)  # layers, batch, width: a recurrent state
        else:
            shape.append(length)
    return tuple(shape)
