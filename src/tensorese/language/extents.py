"""What a primitive leaves implicit: how long the loop is that it fuses, binds or splits.

A schedule says "bind the fused loop to threadIdx.x" and never "256 threads". The number follows
from earlier tiles: it is a product of decisions. On a log scale a product is a sum, so each
implied extent is a linear form over the logarithms of the values, worked out once per sketch.
Where the record lacks it (an axis never split), the form is None; and only the primitives that
put a loop to use report it (a split, a binding), not those that pass it on (a fusion).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from tensorese.language.trace import Instruction, read_trace


class LogExtent(NamedTuple):
    """log2 of an extent: a constant plus `terms`, coefficients by decision index."""

    constant: float
    terms: dict[int, float]


Maybe: TypeAlias = LogExtent | None
Slots: TypeAlias = Sequence[tuple[int, int]]


def _constant(value: float) -> Maybe:
    return LogExtent(math.log2(value), {}) if value > 0 else None


def _sum(forms: Sequence[Maybe], signs: Sequence[float] | None = None) -> Maybe:
    """The log of a product (or, with negative signs, of a quotient)."""
    constant = 0.0
    terms: dict[int, float] = {}
    for form, sign in zip(forms, signs or [1.0] * len(forms), strict=True):
        if form is None:
            return None
        constant += sign * form.constant
        for index, coefficient in form.terms.items():
            terms[index] = terms.get(index, 0.0) + sign * coefficient
    return LogExtent(constant, {k: v for k, v in terms.items() if v})


def _rest(extent: Maybe, parts: Sequence[Maybe]) -> Maybe:
    """What is left of an extent after the parts are split off."""
    return _sum([extent, *parts], [1.0, *[-1.0] * len(parts)])


def implied_extents(dialect: str, body: str, slots: Slots) -> list[Maybe]:
    """One form (or None) per instruction of the sketch."""
    return read_extents(dialect, body, slots)[0]


def read_extents(dialect: str, body: str, slots: Slots) -> tuple[list[Maybe], frozenset[int]]:
    """The implied extents, and the instructions whose recorded extent is not to be believed.

    Ansor records the fused extent of a stage computed at another's loop when the split is first
    made. Its evolution then changes the tiles and leaves that number as it was, so it
    describes a program's ancestors, not its tile.
    """
    if dialect != "ansor":
        trace = _Trace()
        return [trace.read(one) for one in read_trace(body, slots)], frozenset()
    steps = _Ansor(slots)
    return steps.read(json.loads(body)), frozenset(steps.stale)


class _Holes:
    """Deals out decision indices to the holes of each instruction, in slot order."""

    def __init__(self, slots: Slots) -> None:
        self._of: dict[int, list[list[Maybe]]] = {}
        at = 0
        for instruction, length in slots:
            count = 1 if length < 0 else length
            forms: list[Maybe] = [LogExtent(0.0, {at + k: 1.0}) for k in range(count)]
            self._of.setdefault(instruction, []).append(forms)
            at += count

    def take(self, instruction: int) -> list[Maybe]:
        """The next hole of this instruction."""
        waiting = self._of.get(instruction)
        return waiting.pop(0) if waiting else []


class _Ansor:
    """Follows each stage's list of loops through splits, fusions and reorderings."""

    def __init__(self, slots: Slots) -> None:
        self.holes = _Holes(slots)
        self.stages: list[list[Maybe]] = []
        self.splits: dict[int, tuple[Maybe, list[Maybe]]] = {}
        self.attached: list[list[Maybe]] = []
        """Loops of the stages computed at another's loop."""
        self.stale: set[int] = set()

    def read(self, steps: list[list[Any]]) -> list[Maybe]:
        forms: list[Maybe] = []
        for index, step in enumerate(steps):
            handler = getattr(self, f"_{step[0].lower()}", None)
            try:
                forms.append(handler(index, *step[1:]) if handler else None)
            except (TypeError, IndexError, KeyError, ValueError):
                forms.append(None)  # a step of another shape than ours: it implies nothing
        return forms

    def _loops(self, stage: int, upto: int = -1) -> list[Maybe]:
        while len(self.stages) <= stage:
            self.stages.append([])
        loops = self.stages[stage]
        loops.extend([None] * (upto + 1 - len(loops)))
        return loops

    def _sp(self, index: int, stage: int, at: int, extent: Any, lengths: Any, _: Any) -> Maybe:
        whole = self.holes.take(index)[0] if extent is None else _constant(extent)
        if extent is None and any(self._loops(stage) is loops for loops in self.attached):
            self.stale.add(index)
            whole = None
        parts = self.holes.take(index) if lengths is None else [_constant(x) for x in lengths]
        outer = _rest(whole, parts)
        self.splits[index] = (whole, parts)
        self._loops(stage, at)[at : at + 1] = [outer, *parts]
        return outer

    def _fsp(self, index: int, stage: int, at: int, source: int, count: int) -> Maybe:
        whole, parts = self.splits[source]
        mine = [*parts[: count - 1], _sum(parts[count - 1 :])]
        self._loops(stage, at)[at : at + 1] = [_rest(whole, parts), *mine]
        return None

    def _ffsp(
        self, index: int, stage: int, at: int, sources: list[int], level: int, factor: int
    ) -> Maybe:
        length = _sum([self.splits[source][1][level] for source in sources])
        loops = self._loops(stage, at)
        rest = _rest(loops[at], [length])
        loops[at : at + 1] = [rest, length] if factor else [length, rest]
        return None

    def _fu(self, index: int, stage: int, ids: list[int]) -> Maybe:
        loops = self._loops(stage, max(ids))
        fused = _sum([loops[i] for i in ids])
        loops[ids[0] : ids[-1] + 1] = [fused]
        return None

    def _re(self, index: int, stage: int, order: list[int]) -> Maybe:
        loops = self._loops(stage, max(order))
        loops[:] = [loops[i] for i in order]
        return None

    def _an(self, index: int, stage: int, at: int, _: int) -> Maybe:
        return self._loops(stage, at)[at]

    def _ca(self, index: int, stage: int, *_: Any) -> Maybe:
        self.attached.append(self._loops(stage))
        return None

    def _chw(self, index: int, stage: int, _: str) -> Maybe:
        self._loops(stage)
        self.stages.insert(stage, [])  # the cache takes the stage's place
        return None

    def _chr(self, index: int, stage: int, *_: Any) -> Maybe:
        self._loops(stage)
        self.stages.insert(stage + 1, [])
        return None

    def _rf(self, index: int, stage: int, *_: Any) -> Maybe:
        self._loops(stage)
        self.stages.insert(stage, [])
        return None


class _Trace:
    """Follows loop and value variables by name through a MetaSchedule trace."""

    def __init__(self) -> None:
        self.values: dict[str, Maybe] = {}

    def read(self, one: Instruction) -> Maybe:
        """What the next instruction implies."""
        decided: list[Maybe] = [LogExtent(0.0, {column: 1.0}) for column in one.columns or ()]
        if one.kind == "SamplePerfectTile":
            self.values.update(zip(one.outputs, decided, strict=False))
            whole = _sum(decided) if decided else None
            self.values[one.inputs[0]] = whole
            return whole
        if one.kind == "SampleCategorical":
            self.values.update(zip(one.outputs, decided, strict=False))
            return None
        if one.kind == "Split":
            return self._split(one.inputs, one.outputs)
        if one.kind == "Fuse":
            fused = _sum([self._value(name) for name in one.inputs])
            self.values[one.outputs[0]] = fused
            return None
        if one.kind in {"Bind", "Vectorize", "Unroll", "Parallel"}:
            return self._value(one.inputs[0])
        return None

    def _split(self, inputs: tuple[Any, ...], outputs: tuple[str, ...]) -> Maybe:
        parts = [None if name == "None" else self._value(name) for name in inputs[1:]]
        open_ = [k for k, name in enumerate(inputs[1:]) if name == "None"]
        if len(open_) == 1:
            others = [part for k, part in enumerate(parts) if k != open_[0]]
            parts[open_[0]] = _rest(self._value(inputs[0]), others)
        self.values.update(zip(outputs, parts, strict=False))
        return parts[0] if parts else None

    def _value(self, name: Any) -> Maybe:
        return _constant(name) if isinstance(name, int) else self.values.get(name)
