"""Programs written for a language model: the grammar of each sketch, and its programs' answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tensorese.arrays import Ints
from tensorese.features.context import context_of
from tensorese.features.programs import ProgramSet
from tensorese.language.sentence import FIELDS, SPEEDS, VERSION, Grammar, Written
from tensorese.language.trace_sentence import read_grammar
from tensorese.language.vocabulary import Vocabulary
from tensorese.records.nouns import Sketch, Workload

DEFINITION = (VERSION, tuple(FIELDS.items()), SPEEDS, Vocabulary().hash)
"""What the words of a sentence depend on."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SentenceSet:
    """Programs `[n]`, sketch by sketch."""

    grammars: tuple[Grammar, ...]
    written: tuple[Written, ...]
    members: tuple[Ints, ...]
    """By sketch: which of the programs are its."""

    def __len__(self) -> int:
        return sum(map(len, self.members))


def grammar_of(workload: Workload, sketch: Sketch, row: Sequence[int] | Ints) -> Grammar:
    """`row` are the decisions of any program of the sketch, which tell its extents."""
    context = context_of(workload)
    return read_grammar(sketch.body, sketch.slots, row, context.blocks, context.shapes)


def sentences(workload: Workload, sketch: Sketch, decisions: npt.ArrayLike) -> SentenceSet:
    rows = np.asarray(decisions, dtype=np.int64)
    rows = rows.reshape(len(rows), sketch.n_decisions)  # may have no columns
    if not len(rows):
        return SentenceSet(grammars=(), written=(), members=())
    grammar = grammar_of(workload, sketch, rows[0])
    return SentenceSet(
        grammars=(grammar,), written=(grammar.write(rows),), members=(np.arange(len(rows)),)
    )


def sentences_of(programs: ProgramSet) -> SentenceSet:
    grammars = tuple(
        grammar_of(programs.workloads[pair.workload], pair.sketch, decisions[0])
        for pair, decisions in zip(programs.pairs, programs.decisions, strict=True)
    )
    written = tuple(
        grammar.write(decisions)
        for grammar, decisions in zip(grammars, programs.decisions, strict=True)
    )
    return SentenceSet(grammars=grammars, written=written, members=programs.members)
