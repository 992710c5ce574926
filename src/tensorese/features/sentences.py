"""Programs written for a language model: the grammar of each sketch, and its programs' answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Ints
from tensorese.features.context import context_of
from tensorese.features.programs import ProgramSet
from tensorese.language.ansor_sentence import read_ansor_grammar
from tensorese.language.sentence import FIELDS, NUMBER, SPEEDS, VERSION, Grammar, Written
from tensorese.language.trace_sentence import read_grammar
from tensorese.language.vocabulary import Vocabulary
from tensorese.language.words import NUMBERS
from tensorese.records.nouns import Sketch, Workload

DEFINITION = (VERSION, tuple(FIELDS.items()), SPEEDS, Vocabulary().hash)
"""What the words of a sentence depend on."""
ATOMIC = (*DEFINITION, NUMBER, tuple(NUMBERS.tolist()))
"""The same of sentences whose numbers are whole."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SentenceSet:
    """Programs `[n]`, sketch by sketch."""

    grammars: tuple[Grammar, ...]
    written: tuple[Written, ...]
    members: tuple[Ints, ...]
    """By sketch: which of the programs are its."""

    def __len__(self) -> int:
        return sum(map(len, self.members))


def grammar_of(
    workload: Workload, sketch: Sketch, row: Sequence[int] | Ints, atomic: bool = False
) -> Grammar:
    """Of a MetaSchedule sketch; `row` are the decisions of any of its programs: its extents."""
    context = context_of(workload)
    grammar = read_grammar(sketch.body, sketch.slots, row, context.blocks, context.shapes)
    return replace(grammar, atomic=True) if atomic else grammar


def sentences(
    workload: Workload, sketch: Sketch, decisions: npt.ArrayLike, *, atomic: bool = False
) -> SentenceSet:
    rows = np.asarray(decisions, dtype=np.int64)
    rows = rows.reshape(len(rows), sketch.n_decisions)  # may have no columns
    if not len(rows):
        return SentenceSet(grammars=(), written=(), members=())
    grammar, written = _written(workload, sketch, rows, atomic)
    return SentenceSet(grammars=(grammar,), written=(written,), members=(np.arange(len(rows)),))


def _written(
    workload: Workload, sketch: Sketch, rows: Ints, atomic: bool
) -> tuple[Grammar, Written]:
    if sketch.dialect == "ansor":
        shapes = context_of(workload).shapes
        ansor = read_ansor_grammar(sketch.body, sketch.slots, rows, shapes)
        return ansor.grammar, ansor.write(rows)
    grammar = grammar_of(workload, sketch, rows[0], atomic)
    return grammar, grammar.write(rows)


def sentences_of(programs: ProgramSet, *, atomic: bool = False) -> SentenceSet:
    pairs = [
        _written(programs.workloads[pair.workload], pair.sketch, decisions, atomic)
        for pair, decisions in zip(programs.pairs, programs.decisions, strict=True)
    ]
    return SentenceSet(
        grammars=tuple(grammar for grammar, _ in pairs),
        written=tuple(written for _, written in pairs),
        members=programs.members,
    )
