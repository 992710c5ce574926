"""Sentences of made-up grammars: what is asked, in which range, and the way back."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorese.arrays import Ints
from tensorese.language.sentence import (
    ANSWERS,
    CHOICE,
    EXPONENT,
    FAILED,
    FIELDS,
    LOCATION,
    OPTION,
    PLACE,
    SPEEDS,
    TILE,
    Grammar,
    Hole,
    Progress,
    SentenceError,
    speed_class,
)
from tensorese.language.words import NUMBERS

pytestmark = pytest.mark.null

FIRST = {TILE: EXPONENT, CHOICE: OPTION, LOCATION: PLACE}


def grammar(*holes: tuple[int, int, int]) -> Grammar:
    """`(kind, parts, extent)` side by side, without a prompt."""
    placed, column = [], 0
    for kind, parts, extent in holes:
        placed.append(Hole(kind, column, parts, extent))
        column += parts
    return Grammar(words=np.zeros((0, len(FIELDS)), np.int16), holes=tuple(placed))


@st.composite
def programs(draw: st.DrawFn) -> tuple[Grammar, Ints]:
    """A grammar and some of its programs."""
    holes, columns = [], []
    n = draw(st.integers(1, 4))
    for _ in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from((TILE, CHOICE, LOCATION)))
        if kind == TILE:
            parts = draw(st.integers(1, 5))
            table = [draw(tile(parts))]
            extent = math.prod(table[0])
            primes = [p for x in table[0] for p in prime_factors(x)]
            for _ in range(n - 1):
                row = [1] * parts
                for prime in primes:
                    row[draw(st.integers(0, parts - 1))] *= prime
                table.append(row)
            holes.append((kind, parts, extent))
            columns.append(np.array(table, np.int64))
        else:
            options = draw(st.integers(1, 32)) if kind == CHOICE else 0
            values = st.integers(0, options - 1) if kind == CHOICE else st.integers(-2, 61)
            holes.append((kind, 1, options))
            columns.append(np.array([[draw(values)] for _ in range(n)], np.int64))
    rows = np.hstack([np.zeros((n, 0), np.int64), *columns])
    return grammar(*holes), rows


def tile(parts: int) -> st.SearchStrategy[list[int]]:
    part = st.integers(1, 1024) | st.sampled_from((1, 1, 131, 1009, 2**20))
    return st.lists(part, min_size=parts, max_size=parts).filter(lambda t: math.prod(t) < 2**31)


def prime_factors(number: int) -> list[int]:
    found, prime = [], 2
    while number > 1:
        while number % prime == 0:
            found.append(prime)
            number //= prime
        prime += 1
    return found


@given(programs())
def test_reading_restores_what_was_written(made: tuple[Grammar, Ints]) -> None:
    own, rows = made
    written = own.write(rows)
    assert np.array_equal(own.read(written.answers), rows)


@given(programs())
def test_words_and_answers_stay_within_their_sizes(made: tuple[Grammar, Ints]) -> None:
    own, rows = made
    written = own.write(rows)
    assert ((written.words >= 0) & (written.words < list(FIELDS.values()))).all()
    for k, question in enumerate(own.questions):
        first = FIRST[own.holes[question.hole].kind]
        asked = written.asked[:, k]
        answers, most = written.answers[asked, k], written.options[asked, k]
        assert ((answers >= first) & (answers < first + most)).all()
        assert (first + most <= ANSWERS).all()


@given(programs())
def test_what_is_not_asked_needs_no_answer(made: tuple[Grammar, Ints]) -> None:
    own, rows = made
    written = own.write(rows)
    silent = np.where(written.asked, written.answers, 0)
    assert np.array_equal(own.read(silent), rows)


def test_forced_parts_are_never_asked() -> None:
    own = grammar((TILE, 3, 12), (TILE, 1, 8), (TILE, 2, 1), (CHOICE, 1, 1), (CHOICE, 1, 3))
    asked = [(q.hole, q.part, q.prime) for q in own.questions]
    assert asked == [(0, 0, 2), (0, 0, 3), (0, 1, 2), (0, 1, 3), (4, 0, 1)]
    rows = np.array([[12, 1, 1, 8, 1, 1, 0, 2], [2, 2, 3, 8, 1, 1, 0, 0]])
    written = own.write(rows)
    assert written.asked.tolist() == [[1, 1, 0, 0, 1], [1, 1, 1, 1, 1]]  # the first used up 12
    assert written.answers[1].tolist() == [1, 0, 1, 0, OPTION]


def test_questions_tell_what_is_left_and_what_lies_inside() -> None:
    own = grammar((TILE, 2, 64), (TILE, 2, 16))
    written = own.write(np.array([[4, 16, 2, 8]]))
    left, level = (list(FIELDS).index(name) for name in ("left", "level"))
    assert written.words[0, :, left].tolist() == [12, 8]  # half steps of log2
    assert written.words[0, :, level].tolist() == [0, 4]  # the first tile's outer part is 4


OTHER_ROWS = pytest.mark.parametrize(
    ("row", "message"),
    [
        ([2, 4, 0, -1], r"\[2, 4, 0, -1\] does not"),
        ([8, 4, 0, -1], "factor the sketch's extents"),
        ([5, 4, 0, -1], "factor the sketch's extents"),
        ([4, 3, 3, -1], "pick from its options"),
        ([4, 3, -1, -1], "pick from its options"),
        ([4, 3, 0, -3], "pick from its options"),
        ([4, 3, 0, 62], "pick from its options"),
        ([0, 3, 0, -1], "factor the sketch's extents"),
        ([4, 3, 0], "row of 4 integers, but got rows of shape"),
    ],
)


@OTHER_ROWS
@pytest.mark.parametrize("atomic", [False, True])
def test_a_row_of_another_sketch_is_refused(row: list[int], message: str, atomic: bool) -> None:
    own = grammar((TILE, 2, 12), (CHOICE, 1, 3), (LOCATION, 1, 0))
    own = replace(own, atomic=atomic)
    assert len(own.write(np.array([[4, 3, 2, -2]])).answers) == 1
    with pytest.raises(SentenceError, match=message):
        own.write(np.array([row]))


def test_whole_numbers_are_one_answer_a_part() -> None:
    own = replace(grammar((TILE, 3, 360), (TILE, 2, 1), (CHOICE, 1, 3)), atomic=True)
    assert [(q.hole, q.part, q.prime) for q in own.questions] == [(0, 0, 1), (0, 1, 1), (2, 0, 1)]
    rows = np.array([[2, 45, 4, 1, 1, 1], [360, 1, 1, 1, 1, 0]])
    written = own.write(rows)
    assert NUMBERS[written.answers[:, :2] - ANSWERS].tolist() == [[2, 45], [360, 1]]
    assert written.asked.tolist() == [[1, 1, 1], [1, 0, 1]]  # 360 leaves nothing to ask for
    silent = np.where(written.asked, written.answers, 0)
    assert np.array_equal(own.read(silent), rows)


@pytest.mark.parametrize("extent", [257, 514, 2**16])
def test_extents_beyond_the_vocabulary_are_refused(extent: int) -> None:
    with pytest.raises(SentenceError, match=rf"tiles an extent of {extent}; factor them"):
        replace(grammar((TILE, 2, extent)), atomic=True)


def test_more_options_than_answers_are_refused() -> None:
    with pytest.raises(SentenceError, match=r"at most 32 options, but .* has 33"):
        grammar((CHOICE, 1, 33))


def test_programs_that_are_written_together_do_not_touch_each_other() -> None:
    own = grammar((TILE, 4, 360), (TILE, 3, 48), (CHOICE, 1, 4))
    rows = np.array(
        [[2, 3, 4, 15, 48, 1, 1, 0], [1, 1, 1, 360, 2, 4, 6, 3], [5, 8, 9, 1, 1, 1, 48, 1]]
    )
    together = own.write(rows)
    for k in range(len(rows)):
        alone: Any = own.write(rows[k : k + 1])
        for name in ("asked", "answers", "words", "options"):
            assert np.array_equal(getattr(together, name)[k], getattr(alone, name)[0]), name


def test_a_program_under_way_keeps_the_rest_in_the_last_part() -> None:
    own = grammar((TILE, 3, 24))
    state = Progress.start(own, 2)
    assert state.rows().tolist() == [[1, 1, 24]] * 2
    state.push(0, np.array([1, 9]))  # more twos than there are
    assert state.rows().tolist() == [[2, 1, 12], [8, 1, 3]]


def test_speed_classes() -> None:
    share = np.array([1.0, 0.95, 0.94, 0.5, 0.0, np.nan])
    assert speed_class(share).tolist() == [0, 0, 1, 3, len(SPEEDS) - 1, FAILED]
