"""A sketch as a sentence with holes: which argument of which primitive each decision fills.

A decision may show in several places (a sampled tile and the split that uses it), and a
categorical decision shows as the candidate it picks. Both are found by reading the sketch with
marked decisions, so every dialect the parsers read is covered, and nothing is read twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tensorese.language.ansor import join_steps, parse_steps
from tensorese.language.extents import Maybe, read_extents
from tensorese.language.metaschedule import join_trace, parse_trace
from tensorese.language.plan import Plan, read_plan
from tensorese.language.primitive import Arg, Sentence
from tensorese.language.trace import read_trace

Slots: TypeAlias = tuple[tuple[int, int], ...]
Table: TypeAlias = tuple[Arg, ...] | None

_MARK = 1 << 48  # far above any number a schedule holds


class Hole(NamedTuple):
    """An argument that a decision fills: with its own value, or with `table[value]`."""

    decision: int
    table: Table = None


class Row(NamedTuple):
    type: str
    args: tuple[Arg | Hole, ...]
    implied: Maybe = None
    stale: bool = False
    """Its extent, the third argument, was true of an ancestor only: see `extents`."""


@dataclass(frozen=True, kw_only=True)
class Skeleton:
    rows: tuple[Row, ...]
    n_decisions: int
    tables: dict[int, tuple[Arg, ...]]
    """What a categorical decision stands for, by decision index."""
    source: tuple[str, str, Slots]
    """The sketch's dialect, body and slots, for what is read of it on demand."""
    plan: Plan = field(default_factory=Plan)


def read_sentence(dialect: str, body: str, slots: Slots, decisions: Sequence[int]) -> Sentence:
    """The sentence of one program."""
    if dialect == "ansor":
        return parse_steps(join_steps(body, slots, tuple(decisions)))
    return parse_trace(join_trace(body, slots, tuple(decisions)))


def skeleton(dialect: str, body: str, slots: Slots) -> Skeleton:
    slots = tuple((index, length) for index, length in slots)
    count = sum(1 if length < 0 else length for _, length in slots)
    tables = {} if dialect == "ansor" else candidates_of(body, slots)
    marked = [0 if k in tables else _MARK + k for k in range(count)]
    rows: list[list[Arg | Hole]] = []
    base = read_sentence(dialect, body, slots, marked)
    for primitive in base:
        rows.append([_unmark(arg) for arg in primitive.args])
    for decision, candidates in tables.items():
        _place_choice(dialect, body, slots, marked, decision, len(candidates), base, rows)
    implied, stale = read_extents(dialect, body, slots)
    return Skeleton(
        rows=tuple(
            Row(p.type, tuple(args), form, k in stale)
            for k, (p, args, form) in enumerate(zip(base, rows, implied, strict=True))
        ),
        n_decisions=count,
        tables=tables,
        source=(dialect, body, slots),
        plan=read_plan(dialect, body, slots),
    )


def _unmark(arg: Arg) -> Arg | Hole:
    return Hole(int(arg) - _MARK) if isinstance(arg, int) and arg >= _MARK else arg


def candidates_of(body: str, slots: Slots) -> dict[int, tuple[Arg, ...]]:
    """What each categorical decision of a trace chooses from, by decision."""
    return {
        one.columns[0]: one.choices
        for one in read_trace(body, slots)
        if one.columns and one.choices is not None
    }


def _place_choice(
    dialect: str,
    body: str,
    slots: Slots,
    marked: list[int],
    decision: int,
    n_choices: int,
    base: Sentence,
    rows: list[list[Arg | Hole]],
) -> None:
    """Reads the sketch once per choice; what changes is what this decision fills."""
    readings = [base]
    for choice in range(1, n_choices):
        tried = list(marked)
        tried[decision] = choice
        readings.append(read_sentence(dialect, body, slots, tried))
    for k, row in enumerate(rows):
        if all(reading[k].args == base[k].args for reading in readings[1:]):
            continue
        for column in range(len(row)):
            shown = tuple(reading[k].args[column] for reading in readings)
            if len(set(shown)) > 1:
                row[column] = Hole(decision, shown)
