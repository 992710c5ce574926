"""Programs as sentences for a model that writes them: a prompt, then one answer a question.

The prompt says what is computed (blocks, axes with kind, extent and how operands are read along
them), where (the platform's numbers) and by which sketch. Each question is about one decision:
how often a prime divides a part of a tile, which option, which location. Numbers are exponents of
primes, so no extent is out of vocabulary. What follows from earlier answers (the last part of a
tile, a prime that is used up) is never asked. An *atomic* grammar, as the paper's, asks for a
part of a tile as one whole number out of a vocabulary; it is there to be compared.

A word is a row of `FIELDS`, each a small integer; an answer is an id below `ANSWERS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Ints
from tensorese.errors import TensoreseError
from tensorese.language.words import (
    AT,
    NUMBERS,
    factors,
    half_steps,
    number_fields,
    platform_words,
    prime_class,
    put,
    valuation,
)
from tensorese.language.words import CHOICE as CHOICE
from tensorese.language.words import FIELDS as FIELDS
from tensorese.language.words import LOCATION as LOCATION
from tensorese.language.words import NUMBER as NUMBER
from tensorese.language.words import TILE as TILE
from tensorese.language.words import Words as Words

VERSION = 2
EXPONENT, OPTION, PLACE, ANSWERS = 0, 32, 64, 128
"""First id of each kind of answer: an exponent, an option's index, a location plus two. Whole
numbers come after all of them."""
SPEEDS = (0.95, 0.85, 0.7, 0.5, 0.25, 0.0)
"""Least share of the best program's speed in each class of wished-for speed."""
FAILED, UNKNOWN = len(SPEEDS), len(SPEEDS) + 1
N_SPEEDS = len(SPEEDS) + 2


class SentenceError(TensoreseError):
    """A sketch or a program that no sentence of this grammar says."""


class Hole(NamedTuple):
    """One decision of a sketch: `parts` columns from `column` on."""

    kind: int
    column: int
    parts: int
    extent: int
    """Product of a tile's parts; number of a choice's options."""
    limit: int = -1
    """Of a tile's last part; -1 for none."""
    block: int = 0
    axis: int = 0
    access: int = 0
    name: int = 0


class Question(NamedTuple):
    hole: int
    part: int
    prime: int
    """1 where the answer is no exponent."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Written:
    """Programs of one sketch `[n, questions]`: what was asked, in which words, and the answers."""

    asked: npt.NDArray[np.bool_]
    answers: Words
    words: Words
    """`[n, questions, fields]`."""
    options: Words
    """How many answers each question allows, from its kind's first id on."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Grammar:
    """How programs of one sketch of one workload are written; platforms come with `prompt`."""

    words: Words
    """`[T, fields]` of computation and sketch."""
    holes: tuple[Hole, ...]
    atomic: bool = False
    """Whether parts of tiles are whole numbers rather than exponents of primes."""

    def __post_init__(self) -> None:
        for hole in self.holes:
            if self.atomic and hole.kind == TILE and not _known(hole.extent):
                raise SentenceError(
                    f"whole numbers are those below 256 and products of 2, 3, 5 and 7 to "
                    f"{NUMBERS[-1]}, but this sketch tiles an extent of {hole.extent}; factor them"
                )
            if hole.kind == CHOICE and hole.extent > PLACE - OPTION:
                raise SentenceError(
                    f"a sentence chooses among at most {PLACE - OPTION} options, but a decision of "
                    f"this sketch has {hole.extent}"
                )

    @property
    def n_answers(self) -> int:
        return ANSWERS + (len(NUMBERS) if self.atomic else 0)

    @property
    def width(self) -> int:
        """Columns of a row."""
        return sum(hole.parts for hole in self.holes)

    def prompt(self, target: Mapping[str, Any]) -> Words:
        """`[T, fields]`: the platform, then computation and sketch."""
        return np.concatenate([platform_words(target), self.words])

    @cached_property
    def questions(self) -> tuple[Question, ...]:
        asked: list[Question] = []
        for index, hole in enumerate(self.holes):
            if hole.kind == TILE:
                primes = self.primes_of(index)
                asked += [Question(index, k, p) for k in range(hole.parts - 1) for p in primes]
            elif hole.kind == LOCATION or hole.extent > 1:
                asked.append(Question(index, 0, 1))
        return tuple(asked)

    def primes_of(self, hole: int) -> tuple[int, ...]:
        """What a part is asked by; 1 stands for all at once."""
        primes = factors(self.holes[hole].extent)
        return primes[:1] and (1,) if self.atomic else primes

    @cached_property
    def _fixed(self) -> Words:
        """`[questions, fields]`: what a question says whatever was answered before."""
        words = np.zeros((len(self.questions), len(FIELDS)), np.int16)
        for word, question in zip(words, self.questions, strict=True):
            hole = self.holes[question.hole]
            put(word, kind=hole.kind, block=hole.block, axis=hole.axis, access=hole.access)
            put(word, name=hole.name, part=question.part, parts=hole.parts)
            if hole.kind == TILE:
                put(word, **number_fields(hole.extent))
                if self.atomic:
                    put(word, kind=NUMBER)
                else:
                    put(word, prime=prime_class(question.prime))
            elif hole.kind == CHOICE:
                put(word, cap=hole.extent)
        return words

    def words_at(self, question: int, cap: Ints, left: Ints, level: Ints) -> Words:
        """`[n, fields]`: the question, to programs that differ in what they answered so far."""
        words = np.repeat(self._fixed[question][None], len(cap), axis=0)
        if self.holes[self.questions[question].hole].kind == TILE:
            if not self.atomic:
                words[:, AT["cap"]] = np.minimum(cap, FIELDS["cap"] - 1)
            words[:, AT["left"]] = half_steps(left)
        words[:, AT["level"]] = half_steps(level)
        return words

    def write(self, rows: Ints) -> Written:
        """The exact inverse of `read`."""
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise SentenceError(
                f"a program of this sketch is a row of {self.width} integers, but got rows of "
                f"shape {rows.shape}; write it with the grammar of its own sketch"
            )
        n, count = len(rows), len(self.questions)
        asked = np.ones((n, count), np.bool_)
        answers = np.zeros((n, count), np.int16)
        words = np.zeros((n, count, len(FIELDS)), np.int16)
        options = np.zeros((n, count), np.int16)
        state = Progress.start(self, n)
        for index in range(count):
            cap, described = state.ask(index)
            words[:, index] = described
            asked[:, index] = cap > 0
            answer, first = state.answer_of(index, rows), state.first(index)
            factored = state.factors(index)
            many = np.minimum(cap + 1, OPTION - EXPONENT) if factored else np.maximum(cap, 1)
            self._refuse((answer < first) | (answer >= first + many), rows)
            answers[:, index], options[:, index] = answer, many
            state.push(index, answer)
        self._refuse((state.rows() != rows).any(1), rows)
        return Written(asked=asked, answers=answers, words=words, options=options)

    @staticmethod
    def _refuse(wrong: npt.NDArray[np.bool_], rows: Ints) -> None:
        if wrong.any():
            raise SentenceError(
                "decisions must factor the sketch's extents and pick from its options, but "
                f"{rows[wrong][0].tolist()} does not; write it with the grammar of its own sketch"
            )

    def read(self, answers: npt.NDArray[Any]) -> Ints:
        """`[n, columns]` decisions of answers `[n, questions]`; unasked ones are ignored."""
        state = Progress.start(self, len(answers))
        for index in range(len(self.questions)):
            state.push(index, answers[:, index].astype(np.int64))
        return state.rows()


class Progress:
    """Programs of one sketch while they are written; products are carried along."""

    def __init__(self, grammar: Grammar, rows: Ints) -> None:
        self.grammar = grammar
        self._rows = rows
        self._hole = -1
        self._left = np.ones(len(rows), np.int64)
        """Of the tile at hand."""
        self._levels: dict[int, Ints] = {}
        """Product of the tiles' parts so far, by distance from the innermost."""

    @classmethod
    def start(cls, grammar: Grammar, n: int) -> Progress:
        rows = np.zeros((n, grammar.width), np.int64)
        for hole in grammar.holes:
            if hole.kind == TILE:
                rows[:, hole.column : hole.column + hole.parts] = 1
                rows[:, hole.column + hole.parts - 1] = hole.extent
        return cls(grammar, rows)

    def _at(self, question: int) -> tuple[Question, Hole]:
        one = self.grammar.questions[question]
        hole = self.grammar.holes[one.hole]
        if one.hole != self._hole:
            self._finish()
            self._hole = one.hole
            self._left = np.full(len(self._rows), max(hole.extent, 1), np.int64)
        return one, hole

    @property
    def left(self) -> Ints:
        """`[n]`: what the tile at hand has not yet given to its parts."""
        return self._left

    def power(self, prime: int) -> Ints:
        """`[n]`: how often the prime divides that."""
        return valuation(self._left, prime)

    def factors(self, question: int) -> bool:
        """Whether an exponent is asked for."""
        return self.first(question) == EXPONENT

    def first(self, question: int) -> int:
        """The least answer of its kind."""
        kind = self.grammar.holes[self.grammar.questions[question].hole].kind
        tile = ANSWERS if self.grammar.atomic else EXPONENT
        return {TILE: tile, CHOICE: OPTION}.get(kind, PLACE)

    def ask(self, question: int) -> tuple[Ints, Words]:
        """`[n]` the highest exponent (0: nothing to ask; elsewhere answers there are), the words.

        Whole numbers are all that are not too large: which of them divide is to be learnt.
        """
        one, hole = self._at(question)
        if hole.kind != TILE:
            most = hole.extent if hole.kind == CHOICE else ANSWERS - PLACE
            cap = np.full(len(self._rows), most, np.int64)
            level = self._levels.get(0, np.ones(len(self._rows), np.int64))
            return cap, self.grammar.words_at(question, cap, cap, level)
        if self.grammar.atomic:
            cap = np.where(self._left > 1, np.searchsorted(NUMBERS, self._left, "right"), 0)
        else:
            cap = valuation(self._left, one.prime)
        level = self._levels.get(hole.parts - 1 - one.part, np.ones(len(self._rows), np.int64))
        return cap, self.grammar.words_at(question, cap, self._left, level)

    def answer_of(self, question: int, rows: Ints) -> Ints:
        """What programs that are known answer."""
        one, hole = self._at(question)
        value = rows[:, hole.column + one.part]
        if hole.kind == TILE and self.grammar.atomic:
            return number_answers(np.maximum(value, 1))
        if hole.kind == TILE:
            return EXPONENT + valuation(np.maximum(value, 1), one.prime)
        return value + (OPTION if hole.kind == CHOICE else PLACE + 2)

    def push(self, question: int, answers: Ints) -> None:
        one, hole = self._at(question)
        column = hole.column + one.part
        if hole.kind != TILE:
            self._rows[:, column] = answers - (OPTION if hole.kind == CHOICE else PLACE + 2)
            return
        if self.grammar.atomic:
            said = NUMBERS[np.clip(answers - ANSWERS, 0, len(NUMBERS) - 1)]
            factor = np.where(self._left % said == 0, said, 1)
        else:
            factor = one.prime ** np.minimum(answers - EXPONENT, valuation(self._left, one.prime))
        self._rows[:, column] *= factor
        self._left //= factor
        self._rows[:, hole.column + hole.parts - 1] = self._left

    def _finish(self) -> None:
        """The tile at hand is complete: its parts count for the levels."""
        hole = self.grammar.holes[self._hole] if self._hole >= 0 else None
        if hole is not None and hole.kind == TILE:
            for part in range(hole.parts):
                inner = hole.parts - 1 - part
                known = self._levels.get(inner, np.ones(len(self._rows), np.int64))
                self._levels[inner] = known * self._rows[:, hole.column + part]

    def rows(self) -> Ints:
        """What was written so far; the rest of a tile is in its last part."""
        return self._rows


def speed_class(share: npt.NDArray[np.float64]) -> Ints:
    """Class of each program by its share of the best one's speed; NaN is a failure."""
    classes = np.full(len(share), FAILED, np.int64)
    for index in reversed(range(len(SPEEDS))):
        classes[share >= SPEEDS[index]] = index
    return classes


def number_answers(values: Ints) -> Ints:
    """Ids of whole numbers of the vocabulary."""
    return ANSWERS + np.searchsorted(NUMBERS, values)


def _known(extent: int) -> bool:
    """Whether the extent, and so all that divides it, is in the vocabulary."""
    return extent < 1 or extent in NUMBERS
