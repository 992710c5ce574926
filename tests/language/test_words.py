"""The words of prompts: numbers without a vocabulary, and how operands are walked."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorese.language.accesses import Block, Operand
from tensorese.language.words import (
    AT,
    FIELDS,
    access_code,
    computation_words,
    factors,
    half_steps,
    make_word,
    number_fields,
    prime_class,
    valuation,
)

pytestmark = pytest.mark.null


@given(st.integers(1, 10**6), st.sampled_from((2, 3, 5, 7)))
def test_a_valuation_is_the_highest_power_that_divides(number: int, prime: int) -> None:
    power = int(valuation(np.array([number]), prime)[0])
    assert number % prime**power == 0 and number % prime ** (power + 1)


@given(st.integers(1, 10**5))
def test_factors_are_the_primes_of_a_number(number: int) -> None:
    primes = factors(number)
    assert list(primes) == sorted(set(primes))
    whole = math.prod(p ** int(valuation(np.array([number]), p)[0]) for p in primes)
    assert whole == number
    assert all(p % d for p in primes for d in range(2, math.isqrt(p) + 1))


@pytest.mark.parametrize(
    ("number", "fields"),
    [
        (1, {"twos": 0, "threes": 0, "fives": 0, "rest": 0}),
        (0, {"twos": 0, "threes": 0, "fives": 0, "rest": 0}),
        (360, {"twos": 3, "threes": 2, "fives": 1, "rest": 0}),
        (14, {"twos": 1, "threes": 0, "fives": 0, "rest": 6}),  # 2 log2(7) = 5.6
    ],
)
def test_numbers_are_exponents_and_a_rest(number: int, fields: dict[str, int]) -> None:
    assert number_fields(number) == fields


def test_sizes_are_half_steps_of_a_power_of_two() -> None:
    assert half_steps(np.array([0, 1, 2, 3, 1024, 2**60])).tolist() == [0, 0, 2, 3, 20, 63]


def test_primes_beyond_the_table_share_a_class() -> None:
    known = [prime_class(p) for p in (2, 3, 5, 7, 11, 13)]
    assert known == [1, 2, 3, 4, 5, 6]
    assert prime_class(17) == prime_class(1009) == 7 < FIELDS["prime"]


@given(st.dictionaries(st.sampled_from(list(FIELDS)), st.integers(0, 10**6)))
def test_a_word_is_cut_to_the_size_of_its_fields(values: dict[str, int]) -> None:
    word = make_word(**values)
    assert ((word >= 0) & (word < list(FIELDS.values()))).all()
    small = {name: value for name, value in values.items() if value < FIELDS[name]}
    assert all(word[AT[name]] == value for name, value in small.items())


def _matmul() -> Block:
    """C[i, j] += A[i, k] * B[k, 2 j], with A read as 16-bit numbers."""
    i, j, k = ("i", 0), ("i", 1), ("i", 2)
    c, a, b = (
        Operand(0, (8, 6), (i, j), 4, False),
        Operand(1, (8, 5), (i, k), 2, False),
        Operand(2, (5, 12), (k, ("*", j, ("c", 2))), 4, True),
    )
    return Block("matmul", (8, 6, 5), (False, False, True), (a, b), (c,))


def test_how_operands_are_walked_along_an_axis() -> None:
    # Two bits each of C, A and B: 1 element by element, 2 in steps, 3 from row to row.
    block = _matmul()
    assert access_code(block, 0) == 3 | 3 << 2
    assert access_code(block, 1) == 1 | 2 << 4
    assert access_code(block, 2) == 1 << 2 | 3 << 4


def test_a_computation_is_a_word_a_block_and_a_word_an_axis() -> None:
    words = np.stack(computation_words([_matmul()], []))
    assert len(words) == 4
    assert words[0, [AT["parts"], AT["part"], AT["cap"]]].tolist() == [3, 4, 2]
    assert words[1:, AT["axis"]].tolist() == [0, 1, 2]
    assert words[1:, AT["part"]].tolist() == [1, 1, 2]  # the last one reduces
    assert words[1:, AT["twos"]].tolist() == [3, 1, 0]


def test_arguments_stand_in_for_a_module_that_is_not_there() -> None:
    words = computation_words((), [(4, 6), (10,)])
    assert [tuple(w[[AT["block"], AT["axis"], AT["twos"]]]) for w in words] == [
        (0, 0, 2),
        (0, 1, 1),
        (1, 0, 1),
    ]
