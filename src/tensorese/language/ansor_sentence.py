"""Ansor sketches as grammars: steps in words, what a search decides about them as holes.

A split's lengths lack the outermost part of their loop, so sentences are about *wide* rows: that
part comes first, which makes every loop a perfect tile. Numbers are never out of vocabulary and
always divide. The recorded extent of a cooperative fetch describes an ancestor of the program
(see `extents`): it follows from nothing, and is written in digits.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Ints
from tensorese.language.ansor import UNROLL, Slots, Step
from tensorese.language.extents import read_extents
from tensorese.language.sentence import Grammar, Hole, SentenceError, Written
from tensorese.language.vocabulary import Vocabulary
from tensorese.language.words import (
    CHOICE,
    LOCATION,
    MOST_WORDS,
    SKETCH,
    TILE,
    Words,
    computation_words,
    make_word,
    put,
)

INNERMOST = 64
"""Largest innermost length that Ansor's sketches allow."""
BOUND = frozenset((4, 5, 6))
"""Annotations that bind a loop of a GPU: virtual threads, blocks, threads."""
_BASE, _QUOTIENT, _LENGTH = 32, 3, 2  # digits of a fetch's extent over its length, and of that
_SILENT = frozenset(("SP", "PR"))
_PLACES = ("block", "axis", "part", "cap")
Bools: TypeAlias = npt.NDArray[np.bool_]


def unrolls(steps: Sequence[Step]) -> tuple[int, ...]:
    """What Ansor's unroll limit is chosen from."""
    on_gpu = any(step[0] == "AN" and step[-1] in BOUND for step in steps)
    return (0, 16, 64, 512, 1024) if on_gpu else (0, 16, 64, 512)


class _Tile(NamedTuple):
    column: int
    wide: int
    lengths: int
    extent: int

    def widen(self, rows: Ints, wide: Ints) -> Bools:
        lengths = rows[:, self.column : self.column + self.lengths]
        product = np.maximum(lengths, 1).prod(1)
        wide[:, self.wide] = self.extent // product
        wide[:, self.wide + 1 : self.wide + 1 + self.lengths] = lengths
        held: Bools = (lengths >= 1).all(1) & (wide[:, self.wide] * product == self.extent)
        return held

    def narrow(self, wide: Ints, rows: Ints) -> None:
        inner = wide[:, self.wide + 1 : self.wide + 1 + self.lengths]
        rows[:, self.column : self.column + self.lengths] = inner


class _Option(NamedTuple):
    """One of some values, by its index."""

    column: int
    wide: int
    values: tuple[int, ...]
    """Ascending."""

    def widen(self, rows: Ints, wide: Ints) -> Bools:
        values = np.array(self.values)
        index = np.minimum(np.searchsorted(values, rows[:, self.column]), len(values) - 1)
        wide[:, self.wide] = index
        held: Bools = values[index] == rows[:, self.column]
        return held

    def narrow(self, wide: Ints, rows: Ints) -> None:
        rows[:, self.column] = np.array(self.values)[wide[:, self.wide]]


class _Place(NamedTuple):
    """A loop of another stage; which ones are offered is the sketch's."""

    column: int
    wide: int
    values: tuple[int, ...]

    def widen(self, rows: Ints, wide: Ints) -> Bools:
        wide[:, self.wide] = rows[:, self.column]
        held: Bools = np.isin(rows[:, self.column], self.values)
        return held

    def narrow(self, wide: Ints, rows: Ints) -> None:
        rows[:, self.column] = wide[:, self.wide]


class _Fetch(NamedTuple):
    """A split whose extent, the column before its length, is no fixed number."""

    column: int
    wide: int

    def widen(self, rows: Ints, wide: Ints) -> Bools:
        length = np.maximum(rows[:, self.column + 1], 1)
        quotient = rows[:, self.column] // length
        at = self.wide
        for number, digits in ((quotient - 1, _QUOTIENT), (length - 1, _LENGTH)):
            for place in reversed(range(digits)):
                wide[:, at] = number // _BASE**place % _BASE
                at += 1
        fits = (quotient >= 1) & (quotient <= _BASE**_QUOTIENT) & (length <= INNERMOST)
        fits &= quotient * length == rows[:, self.column]
        held: Bools = fits & (length == rows[:, self.column + 1])
        return held

    def narrow(self, wide: Ints, rows: Ints) -> None:
        quotient, length = np.zeros((2, len(wide)), np.int64)
        for place in range(_QUOTIENT):
            quotient = quotient * _BASE + wide[:, self.wide + place]
        for place in range(_QUOTIENT, _QUOTIENT + _LENGTH):
            length = length * _BASE + wide[:, self.wide + place]
        rows[:, self.column] = (quotient + 1) * (length + 1)
        rows[:, self.column + 1] = length + 1


_Part: TypeAlias = _Tile | _Option | _Place | _Fetch


@dataclass(frozen=True, kw_only=True, eq=False)
class AnsorGrammar:
    """How programs of one Ansor sketch of one workload are written."""

    grammar: Grammar
    """Of wide rows."""
    parts: tuple[_Part, ...]
    fixed: Mapping[int, int]
    """By column: an extent that all programs of the sketch record."""

    @property
    def width(self) -> int:
        return len(self.columns) + len(self.fixed)

    @property
    def columns(self) -> dict[int, int]:
        """The wide column of each column that has one of its own, or the first of its digits."""
        places = {}
        for part in self.parts:
            if isinstance(part, _Tile):
                places.update({part.column + k: part.wide + 1 + k for k in range(part.lengths)})
            elif isinstance(part, _Fetch):
                places.update({part.column: part.wide, part.column + 1: part.wide + _QUOTIENT})
            else:
                places[part.column] = part.wide
        return places

    def places(self) -> dict[int, tuple[int, ...]]:
        """By wide column: at which loops a stage may be computed, where that is asked."""
        return {part.wide: part.values for part in self.parts if isinstance(part, _Place)}

    def extents_of(self, columns: Collection[int]) -> int:
        """Product of the extents of the tiles that these wide columns are part of."""
        tiles = [part for part in self.parts if isinstance(part, _Tile)]
        return math.prod(
            tile.extent
            for tile in tiles
            if any(tile.wide <= column <= tile.wide + tile.lengths for column in columns)
        )

    def prompt(self, target: Mapping[str, Any]) -> Words:
        return self.grammar.prompt(target)

    def write(self, rows: Ints) -> Written:
        return self.grammar.write(self.widen(rows))

    def read(self, answers: npt.NDArray[Any]) -> Ints:
        return self.narrow(self.grammar.read(answers))

    def widen(self, rows: Ints) -> Ints:
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise SentenceError(
                f"a program of this sketch is a row of {self.width} integers, but got rows of "
                f"shape {rows.shape}; write it with the grammar of its own sketch"
            )
        wide = np.zeros((len(rows), self.grammar.width), np.int64)
        held = np.ones(len(rows), np.bool_)
        for column, value in self.fixed.items():
            held &= rows[:, column] == value
        for part in self.parts:
            held &= part.widen(rows, wide)
        if not held.all():
            raise SentenceError(
                "lengths must divide the sketch's extents and places and unroll limits be of its "
                f"lists, but {rows[~held][0].tolist()} is not so; write it with the grammar of its "
                "own sketch"
            )
        return wide

    def narrow(self, wide: Ints) -> Ints:
        rows = np.zeros((len(wide), self.width), np.int64)
        for column, value in self.fixed.items():
            rows[:, column] = value
        for part in self.parts:
            part.narrow(wide, rows)
        return rows


def read_ansor_grammar(
    body: str, slots: Slots, rows: Ints, shapes: Sequence[Sequence[int]] = ()
) -> AnsorGrammar:
    """`rows` `[m, columns]` are known programs of the sketch: they tell extents, and from which
    places to choose, as only Ansor itself could list them."""
    steps: list[Step] = json.loads(body)
    reader = _Reader(steps, rows, read_extents("ansor", body, slots)[1])
    for index, length in slots:
        reader.read(index, length)
    vocabulary = Vocabulary()
    said = [w for step in steps if step[0] not in _SILENT for w in _step_words(step, vocabulary)]
    every = [*computation_words((), shapes), *said][:MOST_WORDS]
    words = np.stack(every) if every else np.zeros((0, make_word().size), np.int16)
    return AnsorGrammar(
        grammar=Grammar(words=words, holes=tuple(reader.holes)),
        parts=tuple(reader.parts),
        fixed=reader.fixed,
    )


class _Reader:
    """Deals columns and holes to the slots of a sketch, in their order."""

    def __init__(self, steps: Sequence[Step], rows: Ints, stale: frozenset[int]) -> None:
        self.steps, self.rows, self.stale = steps, rows, stale
        self.holes: list[Hole] = []
        self.parts: list[_Part] = []
        self.fixed: dict[int, int] = {}
        self.column = self.wide = 0
        self.extent: int | None = None
        """Of the split whose lengths come next; None: of a fetch."""
        self.unrolls = unrolls(steps)

    def read(self, index: int, length: int) -> None:
        step = self.steps[index]
        kind, stage, *_ = step
        if kind == "SP" and length < 0:
            self._extent(index)
        elif kind == "SP":
            if step[3] is None and self.extent is None:
                self._fetch(step, length)
            else:
                self._tile(step, length, int(step[3] if step[3] is not None else self.extent or 0))
            self.extent = None
        elif kind == "PR":
            name = Vocabulary().name_id("PR", UNROLL)
            self._hole(Hole(CHOICE, self.wide, 1, len(self.unrolls), block=stage, name=name))
            self._take(_Option(self.column, self.wide, self.unrolls), 1, 1)
        else:
            self._place(step)

    def _extent(self, index: int) -> None:
        values = np.unique(self.rows[:, self.column])
        if index not in self.stale and len(values) == 1:
            self.extent = self.fixed[self.column] = int(values[0])
        self.column += 1

    def _tile(self, step: Step, lengths: int, extent: int) -> None:
        hole = Hole(TILE, self.wide, lengths + 1, extent, INNERMOST, block=step[1], axis=step[2])
        self._hole(hole)
        self._take(_Tile(self.column, self.wide, lengths, extent), lengths, lengths + 1)

    def _fetch(self, step: Step, lengths: int) -> None:
        if lengths != 1:
            raise SentenceError(
                "a split whose extent varies from program to program must have one length, but "
                f"this sketch has {lengths}: {json.dumps(step)}"
            )
        start = self.wide
        for digit in range(_QUOTIENT + _LENGTH):
            options = INNERMOST // _BASE if digit == _QUOTIENT else _BASE
            hole = Hole(CHOICE, start + digit, 1, options, block=step[1], axis=step[2])
            self._hole(hole._replace(access=1 + digit))
        self._take(_Fetch(self.column - 1, start), 1, _QUOTIENT + _LENGTH)

    def _place(self, step: Step) -> None:
        values = tuple(np.unique(self.rows[:, self.column]).tolist())
        single = len(values) == 1  # then it is not asked
        self._hole(Hole(CHOICE if single else LOCATION, self.wide, 1, int(single), block=step[1]))
        part = _Option if single else _Place
        self._take(part(self.column, self.wide, values), 1, 1)

    def _hole(self, hole: Hole) -> None:
        self.holes.append(hole)

    def _take(self, part: _Part, columns: int, wide: int) -> None:
        self.parts.append(part)
        self.column += columns
        self.wide += wide


def _step_words(step: Step, vocabulary: Vocabulary) -> list[Words]:
    """A word a step; an order of loops has one more for each of them."""
    kind = vocabulary.type_id(step[0])
    word = make_word(kind=SKETCH, type=kind)
    numbers = [value for value in step[1:] if type(value) is int]
    for name, value in zip(_PLACES, numbers, strict=False):
        put(word, **{name: max(0, 1 + value)})
    words = [word]
    for value in step[1:]:
        if isinstance(value, str):
            put(word, name=vocabulary.name_id(step[0], value))
        elif isinstance(value, list) and value:
            put(word, parts=len(value))
            if step[0] in ("RE", "CHR"):
                words += [
                    make_word(kind=SKETCH, type=kind, axis=1 + loop, part=1 + place)
                    for place, loop in enumerate(value)
                ]
            else:
                put(word, axis=max(0, 1 + value[0]))
    return words


def ansor_target(target: str, numbers: Sequence[int]) -> dict[str, Any]:
    """A record's target and hardware numbers as what prompts are made from."""
    kind = target.split()[0] if target.split() else "llvm"
    if kind == "llvm":
        return {"kind": kind, "num-cores": max(1, numbers[0])}
    arch = re.search(r"-arch=(\S+)", target)
    return {
        "kind": kind,
        "arch": arch[1] if arch else "",
        "max_shared_memory_per_block": numbers[3],
        "max_threads_per_block": numbers[5],
        "thread_warp_size": numbers[7],
    }
