"""Ansor's transform steps: `["SP", stage, iter, extent, [lengths], inner_to_outer]` and 13 more.

A step is its kind and its parameters, so every kind, also one not yet invented, reads the same
way. Only the pragma string is taken apart: `auto_unroll_max_step$64` is a name and a number.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

from tensorese.language.primitive import (
    TAGGED,
    VALUE,
    Arg,
    Sentence,
    Shape,
    canonical_json,
    fill_slots,
    flatten,
    primitive,
    restore,
)

Step: TypeAlias = list[Any]
Slots: TypeAlias = tuple[tuple[int, int], ...]

STEP_KINDS = (
    *("AN", "FU", "PR", "RE", "SP", "FSP", "FFSP"),
    *("SA", "CA", "CI", "CR", "RF", "CHR", "CHW"),
)
UNROLL = "auto_unroll_max_step"
_UNROLL_TAG = UNROLL + "$"


def _number_after_tag(pragma: Any) -> int | None:
    """64 of `auto_unroll_max_step$64`; None where writing it back would change a character."""
    if not isinstance(pragma, str) or not pragma.startswith(_UNROLL_TAG):
        return None
    digits = pragma[len(_UNROLL_TAG) :]
    return int(digits) if digits.isdecimal() and str(int(digits)) == digits else None


def _name(text: str, args: list[Arg]) -> Shape:
    number = _number_after_tag(text)
    if number is None:
        args.append(text)
        return VALUE
    args.extend((UNROLL, number))
    return TAGGED


def parse_steps(steps: Sequence[Step]) -> Sentence:
    """Steps as a sentence; unknown kinds keep their own type."""
    sentence = []
    for step in steps:
        args: list[Arg] = []
        shape = flatten(step[1:], args, _name)
        sentence.append(primitive(step[0], args, step[0], shape))
    return tuple(sentence)


def write_steps(sentence: Sentence) -> list[Step]:
    """The exact inverse of `parse_steps`."""
    return [[p.form.kind, *restore(p.form.shape, iter(p.args))] for p in sentence]


def split_steps(steps: Sequence[Step]) -> tuple[str, Slots, tuple[int, ...]]:
    """`(body, slots, decisions)`: tile lengths, unroll limits and compute-at places leave holes.

    After a fusion in the same stage the extent of a split is a product of earlier tile lengths:
    it leaves a hole too, or nearly every program would be a sketch of its own.
    """
    body: list[Step] = []
    slots: list[tuple[int, int]] = []
    decisions: list[int] = []
    fused: set[Any] = set()
    for index, step in enumerate(steps):
        kind = "" if None in step else step[0]  # a null of its own would be taken for a hole
        if kind == "SP" and _is_split(step):
            _, stage, iterator, extent, lengths, inner_to_outer = step
            if stage in fused:
                slots.append((index, -1))
                decisions.append(extent)
                extent = None
            slots.append((index, len(lengths)))
            decisions.extend(lengths)
            step = ["SP", stage, iterator, extent, None, inner_to_outer]
        elif kind == "CA" and len(step) == 4 and type(step[3]) is int:
            slots.append((index, -1))
            decisions.append(step[3])
            step = [*step[:3], None]
        elif kind == "PR" and (number := _number_after_tag(step[-1])) is not None:
            slots.append((index, -1))
            decisions.append(number)
            step = [*step[:-1], None]
        elif kind == "FU" and len(step) == 3 and type(step[1]) is int:
            fused.add(step[1])
        body.append(step)
    return canonical_json(body), tuple(slots), tuple(decisions)


def _is_split(step: Step) -> bool:
    return (
        len(step) == 6
        and type(step[1]) is int
        and type(step[3]) is int
        and isinstance(step[4], list)
        and set(map(type, step[4])) <= {int}
    )


def join_steps(body: str, slots: Slots, decisions: tuple[int, ...]) -> list[Step]:
    """The steps that `split_steps` took apart, or new ones from new decisions."""
    steps: list[Step] = json.loads(body)
    for index, value in fill_slots(slots, decisions):
        step = steps[index]
        # Each hole of a step is its next null: a step with slots holds no other.
        step[step.index(None)] = f"{_UNROLL_TAG}{value}" if step[0] == "PR" else value
    return steps
