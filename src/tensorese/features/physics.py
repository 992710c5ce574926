"""The sets of physical features, by the kind of machine they were made for."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from tensorese.features import cpu, gpu
from tensorese.features.tiling import Tiling
from tensorese.language.accesses import Block
from tensorese.language.plan import Plan

Machine: TypeAlias = Literal["gpu", "cuda", "cpu"]
"""`gpu`: operands guessed from the number of axes (Ansor's logs); `cuda`: the same features with
the operands that the module names; `cpu`: lanes, registers, caches and cores."""
MACHINES: tuple[str, ...] = get_args(Machine)


class Meaning(Protocol):
    @property
    def n_features(self) -> int: ...

    def features(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        """`[n, n_features]` from decided values `[n, d]`."""
        ...


def feature_names(machine: str) -> tuple[str, ...]:
    return cpu.NAMES if machine == "cpu" else gpu.NAMES


def features_hash(machine: str = "gpu") -> str:
    """8 hex digits of a set's names and order, and of where its operands come from."""
    prefix = "module\n" if machine == "cuda" else ""
    return hashlib.sha256((prefix + "\n".join(feature_names(machine))).encode()).hexdigest()[:8]


def meaning_of(
    machine: str,
    tiling: Tiling,
    plan: Plan,
    shapes: Sequence[tuple[int, ...]],
    blocks: tuple[Block, ...],
) -> Meaning:
    if machine == "cpu":
        return cpu.CpuPhysics(plan=plan, blocks=blocks)
    reads: Any = gpu.named_reads(tiling, plan, blocks) if machine == "cuda" else None
    return gpu.Physics(tiling=tiling, shapes=tuple(shapes), reads=reads)
