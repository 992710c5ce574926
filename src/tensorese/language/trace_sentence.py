"""MetaSchedule sketches as grammars: a trace's instructions in words, its decisions as holes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tensorese.arrays import Ints
from tensorese.language.accesses import Block
from tensorese.language.sentence import Grammar, Hole
from tensorese.language.trace import Instruction, read_trace
from tensorese.language.vocabulary import Vocabulary
from tensorese.language.words import (
    CHOICE,
    FIELDS,
    LOCATION,
    MOST_WORDS,
    SKETCH,
    TILE,
    Words,
    access_code,
    computation_words,
    make_word,
    number_fields,
    put,
)

_SILENT = frozenset(
    {
        *("GetSBlock", "GetLoops", "GetConsumers", "GetProducers", "GetChildBlocks", "Split"),
        *("SamplePerfectTile", "SampleCategorical", "SampleComputeLocation", "Reorder"),
    }
)
"""Instructions that follow from the others or are asked for."""


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
        word = make_word(kind=SKETCH, type=self.vocabulary.type_id(one.kind))
        for value in (*reversed(one.inputs), *one.attributes):
            if isinstance(value, str) and value in self.of:
                put(word, block=1 + self.of[value])
            elif isinstance(value, str) and value in self.loops:
                _, axis, part = self.loops[value]
                put(word, axis=1 + axis, part=part)
            elif isinstance(value, str):
                put(word, name=self.vocabulary.name_id(one.kind, value.strip('"')))
            elif isinstance(value, tuple) and value and all(type(x) is int for x in value):
                put(word, parts=len(value), cap=max(0, 1 + max(value)))  # stages of a pipeline
            elif isinstance(value, int) and value > 0:
                put(word, **number_fields(int(value)))
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
    every = [*computation_words(blocks, shapes), *words][:MOST_WORDS]
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
