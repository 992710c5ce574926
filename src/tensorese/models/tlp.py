"""TLP: reads a schedule's primitives, ranks programs of a task. One trunk, one head.

Higher is faster; scores compare within a task only. Each head gives two numbers a program: a
rank score and the logit of "this program fails".
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensorese.errors import did_you_mean
from tensorese.features.matrix import MatrixSpec, paper_spec
from tensorese.models.batch import ProgramBatch
from tensorese.models.disk import ModelError as ModelError
from tensorese.models.tree_votes import TreeVotes
from tensorese.models.trunk import TrunkConfig, make_trunk


@dataclass(frozen=True, kw_only=True)
class TLPConfig:
    trunk: TrunkConfig = field(default_factory=TrunkConfig)
    spec: MatrixSpec = field(default_factory=MatrixSpec)
    members: int = 1
    """Networks of this trunk in one model, started apart, trained side by side."""
    physics_members: int = 0
    """Networks beside them that see the physical features alone: they cost next to nothing."""
    doubt: float = 0.0
    """The score is the members' mean less so many times their disagreement."""
    jitter: float = 0.0
    """Scale of a lot that each program draws by its values: see `lots`."""

    @property
    def trunks(self) -> tuple[TrunkConfig, ...]:
        """One per network."""
        plain = replace(self.trunk, style="physics", width=PHYSICS_WIDTH)
        return (self.trunk,) * self.members + (plain,) * self.physics_members


PHYSICS_WIDTH = 128


def default_config(spec: MatrixSpec, **changes: object) -> TLPConfig:
    """Our own: see docs/models.md for the table that each choice comes from."""
    return TLPConfig(trunk=TrunkConfig(**changes), spec=spec)  # type: ignore[arg-type]


def paper_config(kind: str = "gpu", backbone: str = "attention") -> TLPConfig:
    """As published; `kind` (cpu or gpu) sets the crop."""
    trunk = TrunkConfig(
        style="paper",
        backbone=backbone,  # type: ignore[arg-type]
        width=256,
        heads=8,
        dropout=0.0,
        mask=False,
        positions=False,
    )
    return TLPConfig(trunk=trunk, spec=paper_spec(kind))


def make_head(config: TrunkConfig) -> nn.Module:
    if config.style == "paper":
        return nn.Sequential(
            *(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU()),
            *(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 2)),
        )
    width = config.width
    return nn.Sequential(
        nn.Linear(width, width), nn.GELU(), nn.Dropout(config.dropout), nn.Linear(width, 2)
    )


class Member(nn.Module):
    """One trunk and its heads: `[N, heads, 2]`."""

    def __init__(self, config: TrunkConfig, spec: MatrixSpec, platforms: tuple[str, ...]) -> None:
        super().__init__()
        self.config = config
        self.per_position = config.style == "paper"
        self.trunk = make_trunk(config, spec)
        self.heads = nn.ModuleList(make_head(config) for _ in platforms)

    def forward(self, batch: ProgramBatch) -> Tensor:
        x = self.trunk(batch)
        out = torch.stack([head(x) for head in self.heads], dim=-2)
        return out.sum(1) if self.per_position else out


def lots(values_NV: Tensor) -> Tensor:
    """`[N]`: a standard Gumbel number of each program, drawn by a hash of its values.

    The programs a model likes most are those it errs most about, and they come in families.
    Scores that differ by less than the model's error are no order; a lot decides there, always
    the same for the same program, so that the first five are not one guess five times.
    """
    steps = (values_NV.double() * 1024.0).round().long()
    odd = (
        torch.arange(steps.shape[1], device=steps.device) * 0x5851F42D4C957F2D + 0x14057B7EF767814F
    )
    mixed = (steps * odd).sum(-1)
    for shift in (31, 29):
        mixed = (mixed ^ (mixed >> shift)) * 0x2545F4914F6CDD1D
    even = ((mixed >> 20) & ((1 << 40) - 1)).double() / (1 << 40)
    return -torch.log(-torch.log(even.clamp(1e-12, 1.0 - 1e-12))).float()


class TLP(nn.Module):
    """`forward` gives `[N, heads, 2 * members]`; a plain TLP has one head."""

    kind: ClassVar[str] = "tlp"

    def __init__(self, config: TLPConfig, platforms: tuple[str, ...]) -> None:
        super().__init__()
        if len(platforms) != 1 and self.kind == "tlp":
            raise ModelError(
                f"tlp has one platform, but got {', '.join(platforms) or 'none'}; use mtl-tlp"
            )
        self.config = config
        self.platforms = platforms
        self.members = nn.ModuleList(Member(t, config.spec, platforms) for t in config.trunks)
        self.trees: TreeVotes | None = None
        """Grown beside the networks, which know nothing of them: see `training.trees`."""

    def forward(self, batch: ProgramBatch) -> Tensor:
        return torch.cat([member(batch) for member in self.members], dim=-1)

    @staticmethod
    def each(outputs: Tensor) -> Tensor:
        """`[..., members]`: every network's own score."""
        return outputs[..., 0::2] + F.logsigmoid(3.0 - outputs[..., 1::2])

    def score(self, outputs: Tensor, doubt: float | None = None) -> Tensor:
        """`[N, heads]`: the rank score, lowered where a failure is likely or members disagree."""
        return self._mean(self.each(outputs), self.config.doubt if doubt is None else doubt)

    @staticmethod
    def _mean(each: Tensor, doubt: float) -> Tensor:
        if each.shape[-1] == 1:
            return each[..., 0]
        return each.mean(-1) - doubt * each.std(-1, correction=0)

    def rank(self, outputs: Tensor, values_NV: Tensor, platforms: tuple[str, ...]) -> Tensor:
        """`[N, heads]`: what the model as a whole says, trees and lots included.

        `outputs` are of these platforms' heads; values are the programs', in 32 bits.
        """
        each = self.each(outputs)
        if self.trees is not None:
            each = self.trees.beside(each, values_NV, platforms)
        return self.shaken(self._mean(each, self.config.doubt), values_NV)

    def shaken(self, scores: Tensor, values_NV: Tensor) -> Tensor:
        """Scores `[N]` or `[N, heads]` with the programs' lots added."""
        if not self.config.jitter:
            return scores
        drawn = self.config.jitter * lots(values_NV).to(scores.device)
        return scores + drawn.view(-1, *[1] * (scores.dim() - 1))

    def head_index(self, platform: str) -> int:
        if platform not in self.platforms:
            raise ModelError(
                f"the model knows {', '.join(self.platforms)}, but got platform {platform!r}"
                f"{did_you_mean(platform, self.platforms)}; name one of them or add a head"
            )
        return self.platforms.index(platform)
