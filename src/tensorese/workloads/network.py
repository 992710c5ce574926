"""A network: a Relax module with its weights inside, its inputs, and where it came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorese.errors import did_you_mean
from tensorese.records.nouns import TensorSpec
from tensorese.workloads.errors import NetworkError
from tensorese.workloads.token_ranges import lookup_ranges

Array = NDArray[Any]
Reference = Callable[[Sequence[Array]], list[Array]]


@dataclass(frozen=True, kw_only=True)
class Input:
    name: str
    spec: TensorSpec
    below: int = 0
    """Integers drawn for it stay under this, the vocabulary of a token input; 0 to find out."""


@dataclass(frozen=True, kw_only=True)
class Network:
    """`module["main"]` takes `inputs` in order; weights are its constants."""

    name: str
    module: Any
    inputs: tuple[Input, ...]
    reference: Reference
    """The source framework's own outputs, to compare with."""
    exact: str = ""
    """What `reference` is, where it computes more exactly than the framework does by itself."""
    source: str = ""
    """What `load_network` takes to read it again, shapes included; empty for what is no file."""
    notes: tuple[str, ...] = ()
    """What is computed otherwise than the source says, a line each."""

    widened: Reference | None = None
    """The same in float32, where the source computes in half precision and can be widened."""
    given: Mapping[str, Array] = field(default_factory=dict)
    """Inputs that came with the model or from its user, by name: what it is made for."""

    def example(self, seed: int = 0) -> list[Array]:
        """Seeded input of the right shapes and kinds.

        With seed 0 the inputs in `given` stay as they are, else they are shuffled: other values,
        but as plausible. The rest are drawn, integers from what the tables that they are looked up
        in allow.
        """
        random = np.random.default_rng(seed)
        return [self._draw(random, at, seed) for at in range(len(self.inputs))]

    def _draw(self, random: np.random.Generator, at: int, seed: int) -> Array:
        one = self.inputs[at]
        if one.name in self.given:
            array = self.given[one.name]
            return random.permuted(array.ravel()).reshape(array.shape) if seed else array
        if one.spec.dtype == "bool":
            return np.ones(one.spec.shape, bool)
        if one.spec.dtype.startswith(("int", "uint")):
            below = one.below or self._ranges.get(at, 2)
            return random.integers(below, size=one.spec.shape).astype(one.spec.dtype)
        return random.standard_normal(one.spec.shape, np.float32).astype(np_dtype(one.spec.dtype))

    @cached_property
    def _ranges(self) -> dict[int, int]:
        return lookup_ranges(self.module)


def np_dtype(name: str) -> Any:
    """numpy's type of that name; of bfloat16 from the package that adds it."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def checked_inputs(network: Network, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """What a user gives to verify with, by name: each an input, of its shape and type."""
    names = [one.name for one in network.inputs]
    for name, array in arrays.items():
        if name not in names:
            raise NetworkError(
                f"given inputs must be inputs of {network.name} ({', '.join(names)}), but got "
                f"{name!r}{did_you_mean(name, names)}"
            )
        spec = network.inputs[names.index(name)].spec
        if array.shape != spec.shape or array.dtype.name != spec.dtype:
            shape, wanted = ("x".join(map(str, s)) or "scalar" for s in (array.shape, spec.shape))
            raise NetworkError(
                f"input {name!r} must be {wanted} {spec.dtype}, but got {shape} {array.dtype}"
            )
    return dict(arrays)


def parse_extents(text: str, example: str) -> tuple[int, ...]:
    """`1x3x224x224` to its integers."""
    parts = text.lower().split("x")
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        rule = "a shape must be positive integers joined by 'x'"
        raise NetworkError(f"{rule}, but got {text!r}; for example {example}")
    return tuple(int(part) for part in parts)
