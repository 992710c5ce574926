"""A network: a Relax module with its weights inside, its inputs, and where it came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorese.records.nouns import TensorSpec
from tensorese.workloads.errors import ModelError

Array = NDArray[Any]
Reference = Callable[[Sequence[Array]], list[Array]]


@dataclass(frozen=True, kw_only=True)
class Input:
    name: str
    spec: TensorSpec
    below: int = 2
    """Integers drawn for it stay under this: the vocabulary of a token input."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """`module["main"]` takes `inputs` in order; weights are its constants."""

    name: str
    module: Any
    inputs: tuple[Input, ...]
    reference: Reference
    """The source framework's own outputs, to compare with."""
    source: str = ""
    """What `load_network` takes to read it again, shapes included; empty for what is no file."""
    notes: tuple[str, ...] = ()
    """What is computed otherwise than the source says, a line each."""

    def example(self, seed: int = 0) -> list[Array]:
        """Seeded input of the right shapes and kinds."""
        random = np.random.default_rng(seed)
        return [_draw(random, one) for one in self.inputs]


def _draw(random: np.random.Generator, one: Input) -> Array:
    if one.spec.dtype == "bool":
        return np.ones(one.spec.shape, bool)
    if one.spec.dtype.startswith(("int", "uint")):
        return random.integers(one.below, size=one.spec.shape).astype(one.spec.dtype)
    return random.standard_normal(one.spec.shape, np.float32).astype(one.spec.dtype)


def parse_extents(text: str, example: str) -> tuple[int, ...]:
    """`1x3x224x224` to its integers."""
    parts = text.lower().split("x")
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        rule = "a shape must be positive integers joined by 'x'"
        raise ModelError(f"{rule}, but got {text!r}; for example {example}")
    return tuple(int(part) for part in parts)
