"""Small networks on hand-derived hardware features: torch trains them, numpy runs them.

Importing torch takes two seconds, a fifth of a short tuning run. `PhysicsConfig` and the names of
the tensors specify the networks; `training/physics.py` builds the same ones in torch.
Shape legend: N programs, M networks, F features, W width, H heads (one a platform).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np

from tensorese.arrays import Floats32
from tensorese.features.base import feature_set
from tensorese.features.physics import Machine, feature_names
from tensorese.models.base import Model, ModelError, Tensors, register, softplus

CHUNK = 2048  # rows at once: the hidden layers stay in the cache
SCALE = 0.25
"""Factor on the features, which are logarithms: inputs are of order one."""
FAILS = 3.0
"""Logit of failing from which a score is lowered."""


@dataclass(frozen=True, kw_only=True)
class PhysicsConfig:
    machine: Machine = "cpu"
    """Which set of hardware features."""
    networks: int = 4
    width: int = 64
    blocks: int = 2
    """Residual blocks between encoder and heads."""
    dropout: float = 0.1
    noise: float = 0.1
    """On the features in training, in standard deviations."""


def gelu(x: Floats32) -> Floats32:
    """x times the normal distribution; erf by Abramowitz and Stegun 7.1.26, wrong by 1.5e-7."""
    z = np.abs(x) * np.float32(math.sqrt(0.5))
    t = 1.0 / (1.0 + np.float32(0.3275911) * z)
    series = np.float32(1.061405429) * t - np.float32(1.453152027)
    for constant in (1.421413741, -0.284496736, 0.254829592):
        series = series * t + np.float32(constant)
    tail = series * t * np.exp(-z * z)
    half: Floats32 = 0.5 * x * np.where(x >= 0, 2.0 - tail, tail)
    return half


class _Network:
    """Encoder, residual blocks, one head per platform."""

    def __init__(self, weights: Tensors, place: str, blocks: int, heads: int) -> None:
        def linear(name: str) -> tuple[Floats32, Floats32]:
            # As rows by columns: numpy multiplies the transposed matrix more slowly.
            return (
                np.ascontiguousarray(weights[f"{place}.{name}.weight"].T),
                weights[f"{place}.{name}.bias"],
            )

        self.first, self.second = linear("encoder.0"), linear("encoder.3")
        self.blocks = [linear(f"blocks.{k}") for k in range(blocks)]
        self.heads = [(linear(f"heads.{k}.0"), linear(f"heads.{k}.3")) for k in range(heads)]

    def __call__(self, features: Floats32, head: int) -> Floats32:
        x: Floats32 = features * np.float32(SCALE)  # [N, F]
        x = gelu(x @ self.first[0] + self.first[1]) @ self.second[0] + self.second[1]  # [N, W]
        for weight, bias in self.blocks:
            x = x + gelu(x @ weight + bias)
        (inner, inner_bias), (outer, outer_bias) = self.heads[head]
        out: Floats32 = gelu(x @ inner + inner_bias) @ outer + outer_bias
        return out  # [N, 2]: rank score and logit of failing


def _shapes(config: PhysicsConfig, heads: int) -> dict[str, tuple[int, ...]]:
    """Of the weights, by name."""
    width, features = config.width, len(feature_names(config.machine))
    layers = {"encoder.0": (2 * width, features), "encoder.3": (width, 2 * width)}
    layers |= {f"blocks.{k}": (width, width) for k in range(config.blocks)}
    layers |= {f"heads.{k}.0": (width, width) for k in range(heads)}
    layers |= {f"heads.{k}.3": (2, width) for k in range(heads)}
    shapes: dict[str, tuple[int, ...]] = {}
    for network in range(config.networks):
        for name, shape in layers.items():
            shapes[f"networks.{network}.{name}.weight"] = shape
            shapes[f"networks.{network}.{name}.bias"] = shape[:1]
    return shapes


def opinions_of(outputs_NM2: Floats32) -> Floats32:
    """`[N, M]`: rank scores, lowered where a failure is likely."""
    return outputs_NM2[:, :, 0] - softplus(outputs_NM2[:, :, 1] - np.float32(FAILS))


def speeds_of(outputs_NM2: Floats32) -> Floats32:
    """`[N, M]`: log2 of speed against the task's best, at most 0.

    Training fits the sigmoid of a rank score to the task's best latency over the program's.
    """
    behind = softplus(-outputs_NM2[:, :, 0]) + softplus(outputs_NM2[:, :, 1] - np.float32(FAILS))
    return -behind / np.float32(math.log(2.0))


@register
class PhysicsNet(Model):
    kind: ClassVar[str] = "physics"

    def __init__(self, config: PhysicsConfig, platforms: tuple[str, ...], weights: Tensors) -> None:
        self.config, self.platforms = config, platforms
        self.needs = feature_set(f"physics-{config.machine}")
        self.weights = {name: tensor.astype(np.float32) for name, tensor in weights.items()}
        self._networks = [
            _Network(self.weights, f"networks.{k}", config.blocks, len(platforms))
            for k in range(config.networks)
        ]

    def outputs(self, features: Floats32, platform: str) -> Floats32:
        """`[N, M, 2]`: rank score and logit of failing, by network."""
        head = self.head_index(platform)
        if not len(features):
            return np.zeros((0, len(self._networks), 2), dtype=np.float32)
        pieces = [features[at : at + CHUNK] for at in range(0, len(features), CHUNK)]
        parts = [
            np.stack([network(piece, head) for network in self._networks], axis=1)
            for piece in pieces
        ]
        return np.concatenate(parts)

    def opinions(self, inputs: Floats32, platform: str) -> Floats32:
        return opinions_of(self.outputs(inputs, platform))

    def speeds(self, inputs: Floats32, platform: str) -> Floats32:
        return speeds_of(self.outputs(inputs, platform))

    def with_head(self, platform: str, *, name: str = "") -> PhysicsNet:
        """The trunk with the head of one platform alone, under its own or another name."""
        head = f"heads.{self.head_index(platform)}."
        weights = {
            key.replace(head, "heads.0."): tensor
            for key, tensor in self.weights.items()
            if "heads." not in key or head in key
        }
        return PhysicsNet(self.config, (name or platform,), weights)

    def section(self) -> dict[str, Any]:
        return asdict(self.config)

    def tensors(self, *, half: bool) -> Tensors:
        dtype = np.float16 if half else np.float32
        return {name: tensor.astype(dtype) for name, tensor in self.weights.items()}

    @classmethod
    def build(
        cls, platforms: tuple[str, ...], section: Mapping[str, Any], tensors: Tensors
    ) -> Self:
        config = PhysicsConfig(**section)
        parts = config.networks * (1 + max(config.blocks, 0) + len(platforms))
        if not 0 < parts <= len(tensors):
            raise ModelError(f"{len(tensors)} tensors are no weights of {parts} repeated layers")
        if _shapes(config, len(platforms)) != {name: t.shape for name, t in tensors.items()}:
            raise ModelError("the config's sizes must be those of the weights, but they differ")
        return cls(config, platforms, tensors)
