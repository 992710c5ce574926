"""Whether steps keep Ansor's own rules, as far as arithmetic can tell.

Ansor left TVM, so no step can be replayed: this is what its sketch rules and
annotation state in numbers. It reads steps alone, and shares nothing with how they are written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from tensorese.language.ansor import UNROLL, Slots, Step, split_steps
from tensorese.language.ansor_sentence import INNERMOST, unrolls
from tensorese.language.extents import Maybe, implied_extents

VTHREAD, THREAD = 4, 6
"""Ansor's annotations of loops that become virtual and real threads."""


@dataclass(frozen=True, kw_only=True)
class AnsorHardware:
    threads: int = 1024
    """Most threads of a block."""
    vthreads: int = 8
    warp: int = 32

    @classmethod
    def read(cls, numbers: Sequence[int]) -> Self:
        """Of a record's hardware numbers; those of a CPU bind no threads."""
        if len(numbers) < 8 or min(numbers[5:8]) < 1:
            return cls()
        return cls(threads=numbers[5], vthreads=numbers[6], warp=numbers[7])


def broken_rules(
    steps: Sequence[Step],
    hardware: AnsorHardware,
    places: Mapping[int, Collection[int]] | None = None,
) -> dict[str, str]:
    """What is wrong, by rule: `extents`, `innermost`, `places`, `unroll`, `threads`, `warp`,
    `vthreads`. `places` lists, by step, at which loops a stage may be computed."""
    broken: dict[str, str] = {}
    allowed = unrolls(steps)
    for index, step in enumerate(steps):
        if step[0] == "SP":
            _check_split(step, index, broken)
        elif step[0] == "CA" and step[3] not in (places or {}).get(index, (step[3],)):
            broken["places"] = f"step {index}: place {step[3]} is none of its list"
        elif step[0] == "PR" and str(step[-1]).startswith(UNROLL):
            if str(step[-1]).removeprefix(UNROLL + "$") not in map(str, allowed):
                broken["unroll"] = f"step {index}: {step[-1]} is none of {allowed}"
    if not broken:
        _check_threads(steps, hardware, broken)
    return broken


def _check_split(step: Step, index: int, broken: dict[str, str]) -> None:
    extent, lengths = step[3], step[4]
    if min(lengths) < 1 or extent < 1 or extent % math.prod(lengths):
        broken["extents"] = f"step {index}: lengths {lengths} do not divide {extent}"
    elif lengths[-1] > INNERMOST:
        broken["innermost"] = f"step {index}: length {lengths[-1]} is above {INNERMOST}"


def _check_threads(steps: Sequence[Step], hardware: AnsorHardware, broken: dict[str, str]) -> None:
    body, slots, decisions = split_steps(steps)
    bindings = bound_loops(body, slots)
    tiled = any(annotation == VTHREAD for annotation, _ in bindings)
    for annotation, form in bindings:
        if form is None:
            continue
        size = round(2**form.constant * math.prod(decisions[k] ** c for k, c in form.terms.items()))
        if annotation == VTHREAD and size > hardware.vthreads:
            broken["vthreads"] = f"{size} virtual threads are more than {hardware.vthreads}"
        elif annotation == THREAD and size > hardware.threads:
            broken["threads"] = f"{size} threads are more than {hardware.threads}"
        elif annotation == THREAD and tiled and size < hardware.warp:
            if spatial_size(steps, body, slots) > 2 * hardware.warp:
                broken["warp"] = f"{size} threads are less than a warp of {hardware.warp}"


@lru_cache(maxsize=4096)
def bound_loops(body: str, slots: Slots) -> tuple[tuple[int, Maybe], ...]:
    """Annotation and extent of every loop that is bound to threads or virtual threads."""
    steps = json.loads(body)
    forms = implied_extents("ansor", body, slots)
    return tuple(
        (step[-1], form)
        for step, form in zip(steps, forms, strict=True)
        if step[0] == "AN" and step[-1] in (VTHREAD, THREAD)
    )


def spatial_size(steps: Sequence[Step], body: str, slots: Slots) -> int:
    """Iterations that threads can share: the product of the extents that have a part in them."""
    columns = {k for _, form in bound_loops(body, slots) if form for k in form.terms}
    total, column = 1, 0
    for index, length in slots:
        width = max(1, length)
        if length >= 0 and columns & set(range(column, column + width)):
            total *= steps[index][3]
        column += width
    return total
