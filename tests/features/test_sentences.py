"""Sentences of stored programs: written and read back, every one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensorese.features.programs import ProgramSet, read_programs
from tensorese.features.sentences import grammar_of, sentences, sentences_of
from tensorese.language.sentence import FIELDS, SentenceError
from tensorese.records.store import Store

pytestmark = pytest.mark.null

DATA = Path(__file__).resolve().parents[2] / "data"
STORES = ("cpu", "h200", "again")


def read(name: str) -> ProgramSet:
    with Store.open(DATA / name) as store:
        return read_programs([store])


@pytest.fixture(scope="module", params=("cpu", "h200"))
def programs(request: pytest.FixtureRequest) -> ProgramSet:
    return read(request.param)


def check(programs: ProgramSet, every: int, atomic: bool = False) -> int:
    """Number of programs that were written and read back."""
    done = 0
    for pair, rows in zip(programs.pairs[::every], programs.decisions[::every], strict=True):
        try:
            workload = programs.workloads[pair.workload]
            grammar = grammar_of(workload, pair.sketch, rows[0], atomic)
        except SentenceError:
            assert atomic  # an extent that is no word
            continue
        written = grammar.write(rows)
        assert np.array_equal(grammar.read(written.answers), rows)
        silent = np.where(written.asked, written.answers, 0)
        assert np.array_equal(grammar.read(silent), rows)
        for words in (grammar.words, written.words):
            assert ((words >= 0) & (words < list(FIELDS.values()))).all()
        done += len(rows)
    return done


@pytest.mark.parametrize("atomic", [False, True])
def test_stored_programs_round_trip(programs: ProgramSet, atomic: bool) -> None:
    assert check(programs, 23, atomic) > len(programs) / 60


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_every_stored_program_round_trips(name: str) -> None:
    programs = read(name)
    assert check(programs, every=1) == len(programs)


def test_any_row_of_a_sketch_gives_the_same_grammar(programs: ProgramSet) -> None:
    for pair, rows in zip(programs.pairs[::97], programs.decisions[::97], strict=True):
        workload = programs.workloads[pair.workload]
        one, two = (grammar_of(workload, pair.sketch, rows[k]) for k in (0, -1))
        assert one.holes == two.holes and np.array_equal(one.words, two.words)


def test_sketches_of_a_workload_have_prompts_of_their_own(programs: ProgramSet) -> None:
    prompts = set()
    for pair, rows in zip(programs.pairs, programs.decisions, strict=True):
        grammar = grammar_of(programs.workloads[pair.workload], pair.sketch, rows[0])
        prompts.add((pair.workload, grammar.words.tobytes(), grammar.holes))
    assert len(prompts) == len(programs.pairs)


def test_a_program_of_another_workload_is_refused(programs: ProgramSet) -> None:
    longest = max(range(len(programs.pairs)), key=lambda k: programs.pairs[k].sketch.n_decisions)
    pair = programs.pairs[longest]
    grammar = grammar_of(
        programs.workloads[pair.workload], pair.sketch, programs.decisions[longest][0]
    )
    refused = 0
    for other, rows in zip(programs.pairs, programs.decisions, strict=True):
        if other.sketch.n_decisions != pair.sketch.n_decisions:
            with pytest.raises(SentenceError, match=r"row of .* integers"):
                grammar.write(rows)
            refused += 1
    assert refused > 10


def test_a_set_of_all_programs_is_what_each_sketch_gives(programs: ProgramSet) -> None:
    few = [k for k in range(0, len(programs.pairs), len(programs.pairs) // 4)]
    whole = sentences_of(programs)
    assert len(whole) == len(programs)
    for k in few:
        pair, rows = programs.pairs[k], programs.decisions[k]
        one = sentences(programs.workloads[pair.workload], pair.sketch, rows)
        assert np.array_equal(one.grammars[0].words, whole.grammars[k].words)
        assert np.array_equal(one.written[0].answers, whole.written[k].answers)
        assert np.array_equal(whole.members[k], programs.members[k])


def test_no_programs_are_no_sentences(programs: ProgramSet) -> None:
    pair = programs.pairs[0]
    assert len(sentences(programs.workloads[pair.workload], pair.sketch, [])) == 0
