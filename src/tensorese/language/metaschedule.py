"""MetaSchedule traces: `[instructions, decisions]` of TVM 0.27 and of older versions.

An instruction is `[kind, inputs, attributes, outputs]`; decisions are `[index, value]`. In a
sentence every random variable is gone: blocks and loops are numbered in the order they appear,
a sampled variable is the value decided for it. From `EnterPostproc` on a trace holds what the
postprocessors derived; that tail is kept aside.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeAlias

from tensorese.language.primitive import (
    IMPLIED,
    QUOTED,
    VALUE,
    VARIABLE,
    Arg,
    Primitive,
    Sentence,
    Shape,
    canonical_json,
    fill_slots,
    flatten,
    primitive,
    restore,
)

Trace: TypeAlias = list[Any]
Slots: TypeAlias = tuple[tuple[int, int], ...]

POSTPROC = "EnterPostproc"
RENAMED = {"GetBlock": "GetSBlock"}
# Attributes that 0.27 writes and older TVM left out, by kind: the full list of defaults.
DEFAULT_ATTRIBUTES: dict[str, tuple[int, ...]] = {"Split": (1, 0)}
_NUMBERED = re.compile(r'"lv\d+_')


class _Reader:
    """Reads instructions in order, remembering what each variable stands for."""

    def __init__(self) -> None:
        self.values: dict[str, Arg] = {}
        self.counts = {"b": 0, "l": 0}

    def read(self, instruction: list[Any], decision: list[Any]) -> Primitive:
        """`decision` holds the decided value, or nothing."""
        kind, inputs, attributes, outputs = instruction
        args: list[Arg] = []
        shape = [flatten(inputs, args, self._name), self._attributes(kind, attributes, args)]
        shape.extend(flatten(value, args) for value in decision)
        drawn = _drawn(attributes, decision, len(outputs))
        shape.append(tuple(self._define(name, drawn, args) for name in outputs))
        return primitive(RENAMED.get(kind, kind), args, kind, tuple(shape))

    def _name(self, text: str, args: list[Arg]) -> Shape:
        if text in self.values:
            args.append(self.values[text])
            return (VARIABLE, text, 1)
        if len(text) >= 2 and text[0] == text[-1] == '"':
            args.append(text[1:-1])
            return QUOTED
        args.append(text)
        return VALUE

    def _attributes(self, kind: str, attributes: list[Any], args: list[Arg]) -> Shape:
        shapes = [flatten(attribute, args) for attribute in attributes]
        missing = DEFAULT_ATTRIBUTES.get(kind, ())[len(attributes) :]
        args.extend(missing)
        return (*shapes, *(IMPLIED for _ in missing))

    def _define(self, name: str, drawn: list[Arg], args: list[Arg]) -> Shape:
        prefix = name[:1]
        if prefix in self.counts:
            self.values[name] = self.counts[prefix]
            self.counts[prefix] += 1
            args.append(self.values[name])
            return (VARIABLE, name, 1)
        if drawn:
            self.values[name] = drawn.pop(0)
        return (VARIABLE, name, 0)


def _drawn(attributes: list[Any], decision: list[Any], n_outputs: int) -> list[Arg]:
    """What the outputs of a sampling instruction stand for, one value each."""
    if not decision:
        return []
    value = decision[0]
    if isinstance(value, list):
        return list(value) if len(value) == n_outputs else []
    candidates = attributes[0] if attributes and isinstance(attributes[0], list) else None
    if candidates is None:
        return [value]
    return [candidates[value]] if 0 <= value < len(candidates) else []


def cut_tail(trace: Trace) -> tuple[Trace, str]:
    """The trace up to `EnterPostproc`, and the rest as JSON (empty when there is none)."""
    instructions, decisions = trace
    kinds = [instruction[0] for instruction in instructions]
    if POSTPROC not in kinds:
        return trace, ""
    at = kinds.index(POSTPROC)
    head = [instructions[:at], [d for d in decisions if d[0] < at]]
    tail = [instructions[at:], [[index - at, value] for index, value in decisions if index >= at]]
    return head, canonical_json(tail)


def add_tail(trace: Trace, tail: str) -> Trace:
    if not tail:
        return trace
    instructions, decisions = trace
    at = len(instructions)
    more, shifted = json.loads(tail)
    return [instructions + more, decisions + [[index + at, value] for index, value in shifted]]


def parse_trace(trace: Trace) -> Sentence:
    """The trace before postprocessing as a sentence, in the names of TVM 0.27."""
    (instructions, decisions), _ = cut_tail(trace)
    decided = {index: [value] for index, value in decisions}
    reader = _Reader()
    return tuple(
        reader.read(instruction, decided.get(index, []))
        for index, instruction in enumerate(instructions)
    )


def write_trace(sentence: Sentence, tail: str = "") -> Trace:
    """The inverse of `parse_trace`, in the names of the original."""
    instructions: list[list[Any]] = []
    decisions: list[list[Any]] = []
    for index, p in enumerate(sentence):
        inputs, attributes, *decision, outputs = restore(p.form.shape, iter(p.args))
        instructions.append([p.form.kind, inputs, attributes, outputs])
        decisions.extend([index, value] for value in decision)
    return add_tail([instructions, decisions], tail)


def unnumbered(body: str) -> str:
    """A sketch's body without the numbers of the Relax values that some blocks are named after:
    those tell where in its network an operator stands, and so differ between like tasks."""
    return _NUMBERED.sub('"lv_', body)


def split_trace(trace: Trace) -> tuple[str, Slots, tuple[int, ...], str]:
    """`(body, slots, decisions, tail)`: every integer decision before the tail is a hole."""
    (instructions, decided), tail = cut_tail(trace)
    slots: list[tuple[int, int]] = []
    decisions: list[int] = []
    holes: list[list[Any]] = []
    for index, value in decided:
        if type(value) is int:
            slots.append((index, -1))
            decisions.append(value)
        elif isinstance(value, list) and all(type(item) is int for item in value):
            slots.append((index, len(value)))
            decisions.extend(value)
        else:
            holes.append([index, value])
            continue
        holes.append([index, None])
    return canonical_json([instructions, holes]), tuple(slots), tuple(decisions), tail


def join_trace(body: str, slots: Slots, decisions: tuple[int, ...], tail: str = "") -> Trace:
    """The trace that `split_trace` took apart, or a new one from new decisions."""
    instructions, holes = json.loads(body)
    values = dict(fill_slots(slots, decisions))
    decided = [[index, values.get(index, value)] for index, value in holes]
    return add_tail([instructions, decided], tail)
