"""A TLP whose networks see physical features alone, run by numpy: torch is never imported.

Importing torch takes two seconds, a fifth of a short tuning run. These networks are four small
perceptrons; their weights are those of a model folder that `tensorese train` (or torch) wrote.
Shape legend: N programs, M networks, F features.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load

from tensorese.errors import did_you_mean
from tensorese.features.context import context_of
from tensorese.features.reading import Reading
from tensorese.models.disk import (
    WEIGHTS,
    Card,
    ModelError,
    not_one_model,
    read_bytes,
    read_card,
    read_config,
)
from tensorese.models.trees import CERTAIN, SLOWEST, read_forests
from tensorese.records.nouns import Sketch, Workload

Floats = npt.NDArray[np.float32]
CHUNK = 2048  # rows at once: the hidden layers stay in the cache


def gelu(x: Floats) -> Floats:
    """x times the normal distribution; erf by Abramowitz and Stegun 7.1.26, wrong by 1.5e-7."""
    z = np.abs(x) * np.float32(math.sqrt(0.5))
    t = 1.0 / (1.0 + np.float32(0.3275911) * z)
    series = np.float32(1.061405429) * t - np.float32(1.453152027)
    for constant in (1.421413741, -0.284496736, 0.254829592):
        series = series * t + np.float32(constant)
    tail = series * t * np.exp(-z * z)
    half: Floats = 0.5 * x * np.where(x >= 0, 2.0 - tail, tail)
    return half


def softplus(x: Floats) -> Floats:
    found: Floats = np.logaddexp(np.float32(0.0), x)
    return found


class _Network:
    """One member: encoder, residual blocks, one head per platform."""

    def __init__(self, weights: dict[str, Floats], member: int, config: dict[str, Any]) -> None:
        def linear(name: str) -> tuple[Floats, Floats]:
            place = f"members.{member}.{name}"
            # As rows by columns: numpy multiplies the transposed matrix more slowly.
            return np.ascontiguousarray(weights[f"{place}.weight"].T), weights[f"{place}.bias"]

        self.scale = np.float32(config["trunk"]["scale"])
        self.knots = weights.get(f"members.{member}.trunk.physics.knots")
        self.first = linear("trunk.physics.net.0")
        self.second = linear("trunk.physics.net.3")
        self.blocks = [
            linear(f"trunk.residuals.layers.{k}") for k in range(config["trunk"]["blocks"])
        ]
        self.heads = [
            (linear(f"heads.{k}.0"), linear(f"heads.{k}.3"))
            for k in range(len(config["platforms"]))
        ]

    def trunk(self, features: Floats) -> Floats:
        x: Floats = features * self.scale
        if self.knots is not None:
            steps = np.tanh(features[:, :, None] - self.knots)
            x = np.concatenate([x, steps.reshape(len(x), -1)], axis=1)
        x = gelu(x @ self.first[0] + self.first[1]) @ self.second[0] + self.second[1]
        for weight, bias in self.blocks:
            x = x + gelu(x @ weight + bias)
        return x

    def __call__(self, features: Floats, head: int) -> Floats:
        """`[N, 2]`: rank score and logit of failing."""
        (inner, inner_bias), (outer, outer_bias) = self.heads[head]
        out: Floats = gelu(self.trunk(features) @ inner + inner_bias) @ outer + outer_bias
        return out


class SmallModel:
    """Loaded from a folder whose `config.json` says no network but physical ones."""

    def __init__(self, folder: Path) -> None:
        config = read_config(folder)
        if not is_small(config):
            raise ModelError(
                f"numpy runs networks of physical features alone, but {folder} has others; "
                "load it with tensorese.models.load_model"
            )
        try:
            weights = {
                name: tensor.astype(np.float32)
                for name, tensor in load(read_bytes(folder, config)).items()
            }
            count = int(config["members"]) + int(config["physics_members"])
            self.networks = [_Network(weights, k, config) for k in range(count)]
            self.forests = read_forests(folder, config)
            self.votes = int(config.get("tree_votes", count))
            self.card: Card = read_card(config)
        except SafetensorError as error:
            raise ModelError(
                f"{WEIGHTS} must be a safetensors file, but {folder / WEIGHTS} is not; "
                "restore it from a copy"
            ) from error
        except (KeyError, TypeError, ValueError) as error:
            raise not_one_model(folder, error) from error
        self.kind = str(config["kind"])
        self.platforms = tuple(str(name) for name in config["platforms"])
        self.machine = config["matrix"].get("machine", "gpu")
        self.doubt = float(config["doubt"])
        self.hash = str(config["weights_sha256"])[:8]
        self._readings: dict[tuple[str, str], Reading] = {}

    def head_index(self, platform: str) -> int:
        if platform not in self.platforms:
            raise ModelError(
                f"the model knows {', '.join(self.platforms)}, but got platform {platform!r}"
                f"{did_you_mean(platform, self.platforms)}; name one of them or add a head"
            )
        return self.platforms.index(platform)

    def features(self, workload: Workload, sketch: Sketch, decisions: npt.ArrayLike) -> Floats:
        key = (workload.id, sketch.id)
        if key not in self._readings:
            self._readings[key] = Reading(
                self.machine, sketch.dialect, sketch.body, sketch.slots, context_of(workload)
            )
        return self._readings[key].features(decisions)

    def second_opinion(self, features: Floats, head: int) -> Floats | None:
        """`[N]`: the trees' log2 of speed, at most 0; None for a model without trees."""
        forest = self.forests.get(self.platforms[head])
        if forest is None:
            return None
        share = np.clip(forest.predict(features), SLOWEST, CERTAIN)
        return np.log2(share).astype(np.float32)

    def outputs(self, features: Floats, head: int) -> Floats:
        """`[N, M, 2]`: rank score and logit of failing, by network."""
        if not len(features):
            return np.zeros((0, len(self.networks), 2), dtype=np.float32)
        pieces = [features[at : at + CHUNK] for at in range(0, len(features), CHUNK)]
        parts = [
            np.stack([network(piece, head) for network in self.networks], axis=1)
            for piece in pieces
        ]
        return np.concatenate(parts)

    def score(self, features: Floats, head: int) -> Floats:
        """As `TLP.score`: the members' mean, lowered by likely failures and disagreement.

        Trees, where there are any, count as much as `votes` networks.
        """
        outputs = self.outputs(features, head)
        each = outputs[:, :, 0] - softplus(outputs[:, :, 1] - np.float32(3.0))
        second = self.second_opinion(features, head)
        if second is not None:
            share = np.exp2(second)  # as a rank score, of which it is the sigmoid
            each = self._beside(each, np.log(share / (1 - share)))
        scores: Floats = each.mean(1) - np.float32(self.doubt) * each.std(1)
        return scores

    def speed(self, features: Floats, head: int) -> Floats:
        """`[N, M]`: log2 of speed against the task's best, as each network sees it, at most 0;
        with trees `[N, M + votes]`, theirs as often as they have votes.

        Training fits the sigmoid of a rank score to the task's best latency over the program's.
        """
        outputs = self.outputs(features, head)
        behind = softplus(-outputs[:, :, 0]) + softplus(outputs[:, :, 1] - np.float32(3.0))
        speeds: Floats = -behind / np.float32(math.log(2.0))
        second = self.second_opinion(features, head)
        return speeds if second is None else self._beside(speeds, second)

    def _beside(self, each: Floats, second: Floats) -> Floats:
        return np.concatenate([each, np.repeat(second[:, None], self.votes, axis=1)], axis=1)


def is_small(config: dict[str, Any]) -> bool:
    """Whether numpy can run the model of this `config.json`."""
    plain = config["trunk"]["style"] == "physics" or config["members"] == 0
    return bool(plain and config["matrix"]["physics"])
