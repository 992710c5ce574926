"""A MetaSchedule trace as a list of typed instructions, parsed once a sketch.

Every reader of a sketch (plan, tiling, extents, a space's slots and nests) goes through these;
what each instruction leaves open is filled by columns of a decision row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

Slots: TypeAlias = Iterable[tuple[int, int]]
"""`(instruction, length)` per decision in order, length -1 for a single integer."""
_KEPT = 4096


class Instruction(NamedTuple):
    kind: str
    inputs: tuple[Any, ...]
    """Names of variables, literals, lists of them as tuples."""
    attributes: tuple[Any, ...]
    outputs: tuple[str, ...]
    columns: tuple[int, ...] | None
    """Where its decision lies in a row of decisions; None for an instruction that has none."""
    single: bool
    """Whether its decision is one integer rather than a list of parts."""

    @property
    def choices(self) -> tuple[Any, ...] | None:
        """What a categorical decision chooses from."""
        listed = self.single and self.attributes and isinstance(self.attributes[0], tuple)
        return self.attributes[0] if listed else None


Trace: TypeAlias = tuple[Instruction, ...]


def read_trace(body: str, slots: Slots = ()) -> Trace:
    """The instructions of a sketch's body; shared by all who ask, so nothing in it changes."""
    return _parsed(body, tuple((index, length) for index, length in slots))


@lru_cache(maxsize=_KEPT)
def _parsed(body: str, slots: tuple[tuple[int, int], ...]) -> Trace:
    instructions, _ = json.loads(body)
    columns = _columns(slots)
    single = {index for index, length in slots if length < 0}
    return tuple(
        Instruction(
            kind=str(kind),
            inputs=_frozen(inputs),
            attributes=_frozen(attributes),
            outputs=_frozen(outputs),
            columns=columns.get(index),
            single=index in single,
        )
        for index, (kind, inputs, attributes, outputs) in enumerate(instructions)
    )


def _columns(slots: tuple[tuple[int, int], ...]) -> dict[int, tuple[int, ...]]:
    columns: dict[int, tuple[int, ...]] = {}
    at = 0
    for index, length in slots:
        count = 1 if length < 0 else length
        columns[index] = tuple(range(at, at + count))
        at += count
    return columns


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
