"""Numbers of the platform inside a trace, taken out so that one program has one id everywhere.

MetaSchedule writes `16 * cores` into every CPU sketch and the device's thread limits into every
tiled CUDA sketch. They say how to postprocess on this platform, not which program it is. A
sketch without them is *canonical*; before it is replayed, its platform's numbers go back in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensorese.errors import TargetError
from tensorese.language.primitive import canonical_json
from tensorese.language.trace import read_trace

PLACEHOLDER = 0  # an integer, so that a canonical trace with its tail still replays
_JOBS_PER_CORE = 16

Constants = Mapping[int, int]
"""The platform's number by instruction index."""

# What stock MetaSchedule's rules write for a target.
_WRITTEN: dict[str, Callable[[Mapping[str, Any]], int]] = {
    "meta_schedule.parallel": lambda target: _JOBS_PER_CORE * int(target["num-cores"]),
    "meta_schedule.vectorize": lambda _: 64,
    "meta_schedule.thread_extent_low_inclusive": lambda target: int(target["thread_warp_size"]),
    "meta_schedule.thread_extent_high_inclusive": lambda target: int(
        target["max_threads_per_block"]
    ),
}


def take_constants(body: str) -> tuple[str, dict[int, int]]:
    """The body without the platform's numbers, and the numbers."""
    instructions, holes = json.loads(body)
    constants: dict[int, int] = {}
    for index, instruction in enumerate(instructions):
        value = _platform_number(*instruction[:3])
        if value is not None:
            constants[index] = value
            instruction[1][1] = PLACEHOLDER
    return canonical_json([instructions, holes]), constants


def put_constants(body: str, constants: Constants) -> str:
    """The inverse of `take_constants`."""
    if not constants:
        return body
    instructions, holes = json.loads(body)
    for index, value in constants.items():
        instructions[index][1][1] = value
    return canonical_json([instructions, holes])


def is_canonical(body: str) -> bool:
    """Whether the platform's numbers were taken out: without them its postprocessing is open."""
    return bool(_placeholders(body))


def constants_for(body: str, target: str) -> dict[int, int]:
    """What stock MetaSchedule writes where a canonical body has placeholders."""
    spec = json.loads(target)
    try:
        return {index: _WRITTEN[key](spec) for index, key in _placeholders(body)}
    except KeyError as missing:
        raise TargetError(
            f"a target must tell {missing} for its sketches to be completed, but got {target}"
        ) from None


def complete(body: str, target: str) -> str:
    """A canonical body with the target's numbers; any other body as it is."""
    return put_constants(body, constants_for(body, target))


def _placeholders(body: str) -> list[tuple[int, str]]:
    return [
        (index, one.attributes[0])
        for index, one in enumerate(read_trace(body))
        if _platform_number(one.kind, one.inputs, one.attributes) == PLACEHOLDER
    ]


def _platform_number(kind: str, inputs: Sequence[Any], attributes: Sequence[Any]) -> int | None:
    if kind != "Annotate" or not attributes or attributes[0] not in _WRITTEN:
        return None
    return inputs[1] if type(inputs[1]) is int else None
