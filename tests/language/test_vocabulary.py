from __future__ import annotations

from dataclasses import replace

import pytest

from tensorese.language import Vocabulary
from tensorese.language.ansor import STEP_KINDS
from tensorese.language.vocabulary import FREE, NAMES, TYPES, UNKNOWN

pytestmark = pytest.mark.null


def test_every_ansor_kind_has_its_own_id() -> None:
    words = Vocabulary()
    ids = [words.type_id(kind) for kind in STEP_KINDS]
    assert len(set(ids)) == len(STEP_KINDS)
    assert UNKNOWN not in ids
    assert not words.strangers


def test_strangers_are_counted_and_move_nothing() -> None:
    words = Vocabulary()
    before = [words.type_id(t) for t in TYPES]
    assert words.type_id("Teleport") == UNKNOWN
    assert words.name_id("AN", "hyperIdx.x") == UNKNOWN
    assert words.name_id("AN", "hyperIdx.x") == UNKNOWN
    assert words.strangers == {"type:Teleport": 1, "name:hyperIdx.x": 2}
    assert [words.type_id(t) for t in TYPES] == before


def test_appending_a_word_keeps_every_other_id() -> None:
    words, more = Vocabulary(), Vocabulary(names=(*NAMES, "new.scope"))
    assert [words.name_id("CHW", n) for n in NAMES] == [more.name_id("CHW", n) for n in NAMES]
    assert words.hash != more.hash


def test_hash_covers_the_version() -> None:
    assert Vocabulary().hash != replace(Vocabulary(), version=2).hash


def test_block_names_are_free() -> None:
    words = Vocabulary()
    assert words.name_id("GetSBlock", "conv2d") == words.name_id("GetSBlock", "shared") == FREE
    assert not words.strangers


def test_repeated_words_are_refused() -> None:
    with pytest.raises(ValueError, match="distinct"):
        Vocabulary(types=("SP", "SP"))
