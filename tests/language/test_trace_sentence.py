"""A MetaSchedule sketch as prompt words and holes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tensorese.language.accesses import Block, Operand
from tensorese.language.sentence import CHOICE, LOCATION, TILE, Hole
from tensorese.language.trace_sentence import read_grammar
from tensorese.language.vocabulary import Vocabulary
from tensorese.language.words import AT, MOST_WORDS, SKETCH

pytestmark = pytest.mark.null

UNROLL = "meta_schedule.unroll_explicit"
STEPS: list[Any] = [
    ["GetSBlock", [], ["C", "main"], ["b0"]],
    ["GetLoops", ["b0"], [], ["l1", "l2"]],
    ["SamplePerfectTile", ["l2"], [2, 64], ["v3", "v4"]],
    ["Split", ["l2", "v3", "v4"], [1, 0], ["l5", "l6"]],
    ["Annotate", ["b0", '"SSRSRS"'], ["meta_schedule.tiling_structure"], []],
    ["SampleCategorical", [], [[0, 16, 64], [0.25, 0.25, 0.5]], ["v7"]],
    ["Annotate", ["b0", "v7"], [UNROLL], []],
    ["CacheWrite", ["b0"], [0, "global"], ["b8"]],
    ["SampleComputeLocation", ["b8"], [], ["l9"]],
    ["Fuse", ["l5", "l6"], [1], ["l10"]],
]
SLOTS = ((2, 2), (5, -1), (8, -1))
BLOCKS = (
    Block("C", (4, 24), (False, False), (), (Operand(0, (4, 24), (("i", 0), ("i", 1)), 4, False),)),
)


def body(steps: list[Any]) -> str:
    return json.dumps([steps, [[index, None] for index, _ in SLOTS]])


def test_decisions_are_holes_that_know_their_axis_and_their_purpose() -> None:
    grammar = read_grammar(body(STEPS), SLOTS, [6, 4, 1, -1], BLOCKS)
    name = Vocabulary().name_id("Annotate", UNROLL)
    assert grammar.holes == (
        Hole(TILE, 0, 2, 24, 64, block=0, axis=1, access=1),
        Hole(CHOICE, 2, 1, 3, name=name),
        Hole(LOCATION, 3, 1, 0, block=1),
    )
    assert np.array_equal(
        grammar.read(grammar.write(np.array([[2, 12, 2, 0]])).answers), [[2, 12, 2, 0]]
    )


def test_a_sketch_is_said_without_what_follows_from_it() -> None:
    grammar = read_grammar(body(STEPS), SLOTS, [6, 4, 1, -1], BLOCKS)
    said = grammar.words[grammar.words[:, AT["kind"]] == SKETCH]
    kinds = [Vocabulary().type_id(kind) for kind in ("Annotate", "Annotate", "CacheWrite", "Fuse")]
    assert said[:, AT["type"]].tolist() == kinds
    assert said[3, [AT["axis"], AT["part"]]].tolist() == [2, 1]  # the outer part of the second


def test_sketches_that_differ_are_said_differently() -> None:
    one = read_grammar(body(STEPS), SLOTS, [6, 4, 1, -1], BLOCKS)
    scope = [*STEPS[:7], ["CacheWrite", ["b0"], [0, "local"], ["b8"]], *STEPS[8:]]
    loop = [*STEPS[:9], ["Fuse", ["l1", "l5"], [1], ["l10"]]]
    for steps in (scope, loop):
        other = read_grammar(body(steps), SLOTS, [6, 4, 1, -1], BLOCKS)
        assert not np.array_equal(one.words, other.words)


def test_the_row_tells_extents_only() -> None:
    one, two = (
        read_grammar(body(STEPS), SLOTS, row, BLOCKS) for row in ([6, 4, 1, -1], [1, 24, 0, 0])
    )
    assert one.holes == two.holes and np.array_equal(one.words, two.words)


def test_long_prompts_are_cut() -> None:
    long = [*STEPS, *(["Fuse", ["l5", "l6"], [1], [f"l{k}"]] for k in range(20, 20 + MOST_WORDS))]
    assert len(read_grammar(body(long), SLOTS, [6, 4, 1, -1], BLOCKS).words) == MOST_WORDS
