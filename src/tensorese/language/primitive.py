"""A schedule as a sentence: primitives of a type and a flat row of names and numbers.

Two record formats nest their parameters differently. Models see neither: they see `type` and
`args`. What is needed to write the original JSON again sits in `form`, which equal instructions
share.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

Arg: TypeAlias = str | int | float

# A shape mirrors the nesting of a JSON value. A list is a tuple of shapes; leaves are:
VALUE = "v"  # the next argument, as it is
BOOL = "b"  # the next argument, as a boolean
NULL = "n"  # null, no argument
QUOTED = "q"  # the next argument in quotation marks, as traces write string literals
TAGGED = "$"  # the next two arguments joined by `$`, as Ansor writes pragmas
IMPLIED = "+"  # one argument the record leaves out: a default that newer formats spell
# and two marked tuples: ("@", name, n) is a variable that stands for n arguments,
VARIABLE = "@"
MAPPING = "{"  # ("{", keys, shapes) is an object.
Shape: TypeAlias = str | tuple[Any, ...]


class Form(NamedTuple):
    """How an instruction was spelt: its kind in the record and the nesting of its parameters."""

    kind: str
    shape: Shape


class Primitive(NamedTuple):
    """One schedule instruction; `args` are in the order of the record."""

    type: str
    args: tuple[Arg, ...]
    form: Form


Sentence: TypeAlias = tuple[Primitive, ...]

_FORMS: dict[Form, Form] = {}


# `json.dumps` with these settings would build the encoder anew for every value.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical_json(value: Any) -> str:
    """One spelling per value: sorted keys, no spaces, no NaN."""
    return _ENCODER.encode(value)


def primitive(type_: str, args: list[Arg], kind: str, shape: Shape) -> Primitive:
    """A primitive whose form is shared with every equal one."""
    form = Form(kind, shape)
    return Primitive(type_, tuple(args), _FORMS.setdefault(form, form))


def flatten(
    value: Any, args: list[Arg], name: Callable[[str, list[Arg]], Shape] | None = None
) -> Shape:
    """Appends the leaves of a JSON value to `args`; `name` may claim strings."""
    if isinstance(value, str):
        if name is not None:
            return name(value, args)
        args.append(value)
        return VALUE
    if isinstance(value, bool):
        args.append(int(value))
        return BOOL
    if isinstance(value, int | float):
        args.append(value)
        return VALUE
    if isinstance(value, list | tuple):
        return tuple(flatten(item, args, name) for item in value)
    if isinstance(value, dict):
        keys = tuple(sorted(value))
        return (MAPPING, keys, tuple(flatten(value[key], args, name) for key in keys))
    return NULL


def restore(shape: Shape, args: Iterator[Arg]) -> Any:
    """The JSON value that `flatten` took apart."""
    if isinstance(shape, str):
        return _restore_leaf(shape, args)
    if shape and shape[0] == VARIABLE:
        for _ in range(shape[2]):
            next(args)
        return shape[1]
    if shape and shape[0] == MAPPING:
        return {key: restore(item, args) for key, item in zip(shape[1], shape[2], strict=True)}
    values = [(item, restore(item, args)) for item in shape]
    return [value for item, value in values if item != IMPLIED]


def _restore_leaf(shape: str, args: Iterator[Arg]) -> Any:
    if shape == NULL:
        return None
    value = next(args)
    if shape == BOOL:
        return bool(value)
    if shape == QUOTED:
        return f'"{value}"'
    if shape == TAGGED:
        return f"{value}${next(args)}"
    return value


def fill_slots(
    slots: tuple[tuple[int, int], ...], decisions: tuple[int, ...]
) -> Iterator[tuple[int, int | list[int]]]:
    """`(instruction, value)` per slot: a row of integers cut back into decisions."""
    needed = sum(1 if length < 0 else length for _, length in slots)
    if needed != len(decisions):
        raise ValueError(
            f"decisions must fill the slots exactly, but got {len(decisions)} integers "
            f"for {needed} places"
        )
    at = 0
    for instruction, length in slots:
        if length < 0:
            yield instruction, decisions[at]
            at += 1
        else:
            yield instruction, list(decisions[at : at + length])
            at += length
