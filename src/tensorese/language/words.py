"""The words of a sentence, rows of `FIELDS`: what prompts and questions are made of.

Numbers are exponents of small primes and the size of what they leave, so that no extent is out of
vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Ints
from tensorese.language.accesses import Block, Operand, coefficient, iterators
from tensorese.language.hardware import hardware_numbers
from tensorese.language.vocabulary import NAME_SLOTS, TYPE_SLOTS

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
AT = {name: place for place, name in enumerate(FIELDS)}
_PAD, _PLATFORM, _BLOCK, _AXIS, SKETCH, _ARGUMENT = range(6)
TILE, CHOICE, LOCATION, NUMBER = 8, 9, 10, 11
"""Kinds of words; the last four ask. A tile's part is asked prime by prime, or as a `NUMBER`."""
_NUMBERS = ("cores", "vector bits", "L1", "L2", "L3",
            "multiprocessors", "shared memory", "registers", "threads", "warp")  # fmt: skip
_PRIMES = (2, 3, 5, 7, 11, 13)
_OPERANDS = 4
MOST_WORDS = 512  # words of a prompt

Words = npt.NDArray[np.int16]
NUMBERS: Ints = np.array([n for n in range(1, 1 << 16) if n < 256 or 210 ** (16) % n == 0])
"""The vocabulary of whole numbers: small ones, and products of 2, 3, 5 and 7."""


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


def platform_words(target: Mapping[str, Any]) -> Words:
    numbers = hardware_numbers(target)
    words = np.zeros((len(numbers), len(FIELDS)), np.int16)
    for word, (name, value) in zip(words, numbers.items(), strict=True):
        put(word, kind=_PLATFORM, part=1 + _NUMBERS.index(name), **number_fields(value))
    return words


def put(word: Words, **values: int) -> None:
    for name, value in values.items():
        word[AT[name]] = min(value, FIELDS[name] - 1)


def number_fields(value: int) -> dict[str, int]:
    """Exponents of small primes, and the size of what they leave in half steps of log2."""
    exponents = {}
    for name, prime in (("twos", 2), ("threes", 3), ("fives", 5)):
        count = int(valuation(np.array([max(value, 1)]), prime)[0])
        exponents[name] = count
        value //= prime**count
    return {**exponents, "rest": round(2 * math.log2(max(value, 1)))}


def half_steps(values: Ints) -> Words:
    steps = np.rint(2 * np.log2(np.maximum(values, 1).astype(np.float64)))
    return np.asarray(np.minimum(steps, FIELDS["left"] - 1), np.int16)


def prime_class(prime: int) -> int:
    return 1 + (_PRIMES.index(prime) if prime in _PRIMES else len(_PRIMES))


def computation_words(blocks: Sequence[Block], shapes: Sequence[Sequence[int]]) -> list[Words]:
    words: list[Words] = []
    for number, block in enumerate(blocks):
        elements = [operand.element for operand in (*block.writes, *block.reads)]
        words.append(make_word(kind=_BLOCK, block=number, parts=len(block.extents),
                           part=max(elements, default=0), cap=len(block.reads)))  # fmt: skip
        for axis, (extent, reduces) in enumerate(zip(block.extents, block.reduces, strict=True)):
            if extent > 1:
                access = access_code(block, axis)
                word = make_word(
                    kind=_AXIS, block=number, axis=axis, part=1 + reduces, access=access
                )
                put(word, **number_fields(extent))
                words.append(word)
    if not blocks:  # a record without a module: its arguments are all that is known
        for number, shape in enumerate(shapes):
            words += [
                make_word(kind=_ARGUMENT, block=number, axis=axis, **number_fields(extent))
                for axis, extent in enumerate(shape)
            ]
    return words


def make_word(**values: int) -> Words:
    word = np.zeros(len(FIELDS), np.int16)
    put(word, **values)
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
