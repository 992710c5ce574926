"""Numbers of the platform inside a sketch, taken out so that one program has one id everywhere.

MetaSchedule writes `16 * cores` into every CPU sketch and the device's thread limit into every
CUDA sketch. They say how to postprocess on this platform, not which program it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tensorese.records.nouns import canonical_json

PLATFORM_KEYS = frozenset(
    {
        "meta_schedule.parallel",
        "meta_schedule.vectorize",
        "meta_schedule.thread_extent_low_inclusive",
        "meta_schedule.thread_extent_high_inclusive",
    }
)
PLACEHOLDER = 0  # an integer, so that a canonical trace with its tail still replays

Constants = Mapping[int, int]
"""The platform's number by instruction index."""


def take_constants(body: str) -> tuple[str, dict[int, int]]:
    """The body without the platform's numbers, and the numbers."""
    instructions, holes = json.loads(body)
    constants: dict[int, int] = {}
    for index, instruction in enumerate(instructions):
        value = _platform_number(instruction)
        if value is not None:
            constants[index] = value
            instruction[1][1] = PLACEHOLDER
    return canonical_json([instructions, holes]), constants


def put_constants(body: str, constants: Constants) -> str:
    """The inverse of `take_constants`."""
    instructions, holes = json.loads(body)
    for index, value in constants.items():
        instructions[index][1][1] = value
    return canonical_json([instructions, holes])


def _platform_number(instruction: list[Any]) -> int | None:
    kind, inputs, attributes, _ = instruction
    if kind != "Annotate" or not attributes or attributes[0] not in PLATFORM_KEYS:
        return None
    return inputs[1] if type(inputs[1]) is int else None
