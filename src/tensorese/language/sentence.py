"""Programs as sentences for a model that writes them: a prompt, then one answer a question.

The prompt says what is computed (blocks, axes with kind, extent and how operands are read along
them), where (the platform's numbers) and by which sketch. Each question is about one decision:
how often a prime divides a part of a tile, which option, which location. Numbers are exponents of
primes, so no extent is out of vocabulary. What follows from earlier answers (the last part of a
tile, a prime that is used up) is never asked.

A word is a row of `FIELDS`, each a small integer; an answer is an id below `ANSWERS`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Ints
from tensorese.language.accesses import Block, Operand, coefficient, iterators
from tensorese.language.hardware import hardware_numbers
from tensorese.language.trace import Instruction, read_trace
from tensorese.language.vocabulary import NAME_SLOTS, TYPE_SLOTS, Vocabulary

VERSION = 1
FIELDS: Mapping[str, int] = {
    "kind": 16,
    "type": TYPE_SLOTS,
    "name": NAME_SLOTS,
    "block": 32,
    "axis": 32,
    "part": 16,
    "parts": 16,
    "prime": 16,
    "cap": 32,
    "twos": 32,
    "threes": 16,
    "fives": 16,
    "rest": 64,
    "access": 256,
    "left": 64,
    "level": 64,
}
"""Name of each field of a word, and how many values it has."""
_AT = {name: place for place, name in enumerate(FIELDS)}
_PAD, _PLATFORM, _BLOCK, _AXIS, _SKETCH, _ARGUMENT = range(6)
TILE, CHOICE, LOCATION = 8, 9, 10
"""Kinds of words; the last three ask."""
EXPONENT, OPTION, PLACE, ANSWERS = 0, 32, 64, 128
"""First id of each kind of answer: an exponent, an option's index, a location plus two."""
SPEEDS = (0.95, 0.85, 0.7, 0.5, 0.25, 0.0)
"""Least share of the best program's speed in each class of wished-for speed."""
FAILED, UNKNOWN = len(SPEEDS), len(SPEEDS) + 1
N_SPEEDS = len(SPEEDS) + 2
_NUMBERS = ("cores", "vector bits", "L1", "L2", "L3",
            "multiprocessors", "shared memory", "registers", "threads", "warp")  # fmt: skip
_SILENT = frozenset(
    {
        *("GetSBlock", "GetLoops", "GetConsumers", "GetProducers", "GetChildBlocks", "Split"),
        *("SamplePerfectTile", "SampleCategorical", "SampleComputeLocation", "Reorder"),
    }
)
"""Instructions that follow from the others or are asked for."""
_PRIMES = (2, 3, 5, 7, 11, 13)
_OPERANDS = 4
_MOST = 512  # words of a prompt

Words = npt.NDArray[np.int16]


class SentenceError(ValueError):
    """A program that is not written by this grammar."""


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

    def prompt(self, target: Mapping[str, Any]) -> Words:
        """`[T, fields]`: the platform, then computation and sketch."""
        return np.concatenate([platform_words(target), self.words])

    @cached_property
    def questions(self) -> tuple[Question, ...]:
        asked: list[Question] = []
        for index, hole in enumerate(self.holes):
            if hole.kind == TILE:
                primes = factors(hole.extent)
                asked += [Question(index, k, p) for k in range(hole.parts - 1) for p in primes]
            elif hole.kind == LOCATION or hole.extent > 1:
                asked.append(Question(index, 0, 1))
        return tuple(asked)

    @cached_property
    def _fixed(self) -> Words:
        """`[questions, fields]`: what a question says whatever was answered before."""
        words = np.zeros((len(self.questions), len(FIELDS)), np.int16)
        for word, question in zip(words, self.questions, strict=True):
            hole = self.holes[question.hole]
            _put(word, kind=hole.kind, block=hole.block, axis=hole.axis, access=hole.access)
            _put(word, name=hole.name, part=question.part, parts=hole.parts)
            if hole.kind == TILE:
                _put(word, prime=_prime_class(question.prime), **_number(hole.extent))
            elif hole.kind == CHOICE:
                _put(word, cap=hole.extent)
        return words

    def words_at(self, question: int, cap: Ints, left: Ints, level: Ints) -> Words:
        """`[n, fields]`: the question, to programs that differ in what they answered so far."""
        words = np.repeat(self._fixed[question][None], len(cap), axis=0)
        if self.holes[self.questions[question].hole].kind == TILE:
            words[:, _AT["cap"]] = np.minimum(cap, FIELDS["cap"] - 1)
            words[:, _AT["left"]] = _half_steps(left)
        words[:, _AT["level"]] = _half_steps(level)
        return words

    def write(self, rows: Ints) -> Written:
        """The exact inverse of `read`."""
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
            answers[:, index] = state.answer_of(index, rows)
            options[:, index] = np.minimum(cap + 1, EXPONENT + 32) if state.is_tile(index) else cap
            state.push(index, answers[:, index].astype(np.int64))
        if not np.array_equal(state.rows(), rows):
            raise SentenceError("a program must be of its sketch, but its decisions are not")
        return Written(asked=asked, answers=answers, words=words, options=options)

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
        width = sum(hole.parts for hole in grammar.holes)
        rows = np.zeros((n, width), np.int64)
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

    def is_tile(self, question: int) -> bool:
        return self.grammar.holes[self.grammar.questions[question].hole].kind == TILE

    def column(self, question: int) -> int:
        one = self.grammar.questions[question]
        return self.grammar.holes[one.hole].column + one.part

    def ask(self, question: int) -> tuple[Ints, Words]:
        """`[n]` the highest answer (0: nothing to ask; options elsewhere) and the words."""
        one, hole = self._at(question)
        if hole.kind != TILE:
            most = hole.extent if hole.kind == CHOICE else ANSWERS - PLACE
            cap = np.full(len(self._rows), most, np.int64)
            level = self._levels.get(0, np.ones(len(self._rows), np.int64))
            return cap, self.grammar.words_at(question, cap, cap, level)
        cap = valuation(self._left, one.prime)
        level = self._levels.get(hole.parts - 1 - one.part, np.ones(len(self._rows), np.int64))
        return cap, self.grammar.words_at(question, cap, self._left, level)

    def answer_of(self, question: int, rows: Ints) -> Ints:
        """What programs that are known answer."""
        one, hole = self._at(question)
        value = rows[:, hole.column + one.part]
        if hole.kind == TILE:
            return EXPONENT + valuation(np.maximum(value, 1), one.prime)
        return value + (OPTION if hole.kind == CHOICE else PLACE + 2)

    def push(self, question: int, answers: Ints) -> None:
        one, hole = self._at(question)
        column = hole.column + one.part
        if hole.kind != TILE:
            self._rows[:, column] = answers - (OPTION if hole.kind == CHOICE else PLACE + 2)
            return
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

    def take(self, index: Ints) -> None:
        """Goes on with these programs alone, in this order."""
        self._rows, self._left = self._rows[index], self._left[index]
        self._levels = {level: product[index] for level, product in self._levels.items()}


def valuation(values: Ints, prime: int) -> Ints:
    """How often the prime divides each value."""
    count = np.zeros(len(values), np.int64)
    left = values.copy()
    divides = left % prime == 0
    while divides.any():
        count += divides
        left = np.where(divides, left // prime, 1)
        divides = divides & (left % prime == 0)
    return count


@lru_cache(maxsize=4096)
def factors(number: int) -> tuple[int, ...]:
    """The primes of a number, ascending."""
    primes = []
    divisor = 2
    while number > 1:
        if divisor * divisor > number:
            divisor = number
        if number % divisor == 0:
            primes.append(divisor)
            while number % divisor == 0:
                number //= divisor
        divisor += 1
    return tuple(primes)


def speed_class(share: npt.NDArray[np.float64]) -> Ints:
    """Class of each program by its share of the best one's speed; NaN is a failure."""
    classes = np.full(len(share), FAILED, np.int64)
    for index in reversed(range(len(SPEEDS))):
        classes[share >= SPEEDS[index]] = index
    return classes


# -- words ----------------------------------------------------------------------------------------


def platform_words(target: Mapping[str, Any]) -> Words:
    numbers = hardware_numbers(target)
    words = np.zeros((len(numbers), len(FIELDS)), np.int16)
    for word, (name, value) in zip(words, numbers.items(), strict=True):
        _put(word, kind=_PLATFORM, part=1 + _NUMBERS.index(name), **_number(value))
    return words


def _put(word: Words, **values: int) -> None:
    for name, value in values.items():
        word[_AT[name]] = min(value, FIELDS[name] - 1)


def _number(value: int) -> dict[str, int]:
    """Exponents of small primes, and the size of what they leave in half steps of log2."""
    exponents = {}
    for name, prime in (("twos", 2), ("threes", 3), ("fives", 5)):
        count = int(valuation(np.array([max(value, 1)]), prime)[0])
        exponents[name] = count
        value //= prime**count
    return {**exponents, "rest": round(2 * math.log2(max(value, 1)))}


def _half_steps(values: Ints) -> Words:
    steps = np.rint(2 * np.log2(np.maximum(values, 1).astype(np.float64)))
    return np.asarray(np.minimum(steps, FIELDS["left"] - 1), np.int16)


def _prime_class(prime: int) -> int:
    return 1 + (_PRIMES.index(prime) if prime in _PRIMES else len(_PRIMES))


def _computation(blocks: Sequence[Block], shapes: Sequence[Sequence[int]]) -> list[Words]:
    words: list[Words] = []
    for number, block in enumerate(blocks):
        elements = [operand.element for operand in (*block.writes, *block.reads)]
        words.append(_word(kind=_BLOCK, block=number, parts=len(block.extents),
                           part=max(elements, default=0), cap=len(block.reads)))  # fmt: skip
        for axis, (extent, reduces) in enumerate(zip(block.extents, block.reduces, strict=True)):
            if extent > 1:
                access = access_code(block, axis)
                word = _word(kind=_AXIS, block=number, axis=axis, part=1 + reduces, access=access)
                _put(word, **_number(extent))
                words.append(word)
    if not blocks:  # a record without a module: its arguments are all that is known
        for number, shape in enumerate(shapes):
            words += [
                _word(kind=_ARGUMENT, block=number, axis=axis, **_number(extent))
                for axis, extent in enumerate(shape)
            ]
    return words


def _word(**values: int) -> Words:
    word = np.zeros(len(FIELDS), np.int16)
    _put(word, **values)
    return word


def access_code(block: Block, axis: int) -> int:
    """How each of the first operands is walked along an axis, two bits an operand."""
    operands = [*block.writes[:1], *block.reads][:_OPERANDS]
    return sum(_walk(operand, axis) << (2 * k) for k, operand in enumerate(operands))


def _walk(operand: Operand, axis: int) -> int:
    """0: not at all, 1: element by element, 2: in steps, 3: from row to row."""
    if not operand.indices:
        return 0
    inner = operand.indices[-1]
    if inner[0] != "?" and axis in iterators(inner):
        return 1 if abs(coefficient(inner, axis)) == 1 else 2
    return 3 if any(axis in iterators(index) for index in operand.indices if index[0] != "?") else 0


class _SketchReader:
    """Follows blocks and loops by name through a trace."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = blocks
        self.numbers = {block.name: k for k, block in enumerate(blocks)}
        self.of: dict[str, int] = {}
        self.loops: dict[str, tuple[int, int, int]] = {}
        """Block, axis and part of a loop."""
        self.vocabulary = Vocabulary()

    def words(self, trace: Sequence[Instruction]) -> list[Words]:
        words = []
        for one in trace:
            self._follow(one)
            if one.kind not in _SILENT:
                words.append(self._word(one))
        return words

    def _follow(self, one: Instruction) -> None:
        if one.kind == "GetSBlock":
            name = str(one.attributes[0])
            self.of[one.outputs[0]] = self.numbers.setdefault(name, len(self.numbers))
        elif one.kind == "GetLoops":
            block = self.of.get(one.inputs[0], FIELDS["block"] - 1)
            self.loops.update({loop: (block, axis, 0) for axis, loop in enumerate(one.outputs)})
        elif one.kind == "Split":
            block, axis, _ = self.loops.get(one.inputs[0], (0, 0, 0))
            self.loops.update(
                {loop: (block, axis, 1 + part) for part, loop in enumerate(one.outputs)}
            )
        else:
            for name in one.outputs:
                if name.startswith("b"):
                    self.of[name] = self.numbers.setdefault(f"{one.kind}:{name}", len(self.numbers))

    def _word(self, one: Instruction) -> Words:
        word = _word(kind=_SKETCH, type=self.vocabulary.type_id(one.kind))
        for value in (*reversed(one.inputs), *one.attributes):
            if isinstance(value, str) and value in self.of:
                _put(word, block=1 + self.of[value])
            elif isinstance(value, str) and value in self.loops:
                _, axis, part = self.loops[value]
                _put(word, axis=1 + axis, part=part)
            elif isinstance(value, str):
                _put(word, name=self.vocabulary.name_id(one.kind, value.strip('"')))
            elif isinstance(value, int) and value > 0:
                _put(word, **_number(int(value)))
        return word

    def hole(self, one: Instruction, extent: int) -> Hole:
        column = (one.columns or (0,))[0]
        if one.kind == "SamplePerfectTile":
            block, axis, _ = self.loops.get(one.inputs[0], (FIELDS["block"] - 1, 0, 0))
            known = block < len(self.blocks) and axis < len(self.blocks[block].extents)
            access = access_code(self.blocks[block], axis) if known else 0
            return Hole(TILE, column, len(one.columns or ()), extent, int(one.attributes[1]),
                        block, axis, access)  # fmt: skip
        if one.kind == "SampleCategorical":
            return Hole(CHOICE, column, 1, len(one.attributes[0]))
        block = self.of.get(one.inputs[0], FIELDS["block"] - 1)
        return Hole(LOCATION, column, 1, 0, block=block)


def read_grammar(
    body: str,
    slots: Sequence[tuple[int, int]],
    row: Sequence[int] | Ints,
    blocks: Sequence[Block],
    shapes: Sequence[Sequence[int]] = (),
) -> Grammar:
    """Of a MetaSchedule sketch; `row` are the decisions of any of its programs: extents."""
    trace = read_trace(body, tuple(slots))
    reader = _SketchReader(blocks)
    words = reader.words(trace)
    purposes = _purposes(trace, reader.vocabulary)
    holes = []
    for index, _ in slots:
        one = trace[index]
        extent = math.prod(int(row[c]) for c in one.columns or ()) if not one.single else 0
        holes.append(reader.hole(one, extent)._replace(name=purposes.get(index, 0)))
    every = [*_computation(blocks, shapes), *words][:_MOST]
    stacked = np.stack(every) if every else np.zeros((0, len(FIELDS)), np.int16)
    return Grammar(words=stacked, holes=tuple(holes))


def _purposes(trace: Sequence[Instruction], vocabulary: Vocabulary) -> dict[int, int]:
    """By sampling instruction: the annotation or primitive its value ends in."""
    made = {name: k for k, one in enumerate(trace) for name in one.outputs if one.single}
    purposes: dict[int, int] = {}
    for one in trace:
        for name in one.inputs:
            if isinstance(name, str) and name in made:
                text = str(one.attributes[0]) if one.kind == "Annotate" else one.kind
                purposes.setdefault(made[name], vocabulary.name_id(one.kind, text))
    return purposes
