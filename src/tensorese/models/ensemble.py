"""Networks and trees voting: what ships. Every member reads the same features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from tensorese.arrays import Floats32
from tensorese.models.base import Model, ModelError, Tensors, model_class, register

MOST_VOTES = 1000
"""Each takes memory where scores are added up."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Member:
    model: Model
    votes: int = 1
    """How often each of its opinions counts."""


@register
class Ensemble(Model):
    """A member that does not know a platform has no vote there."""

    kind: ClassVar[str] = "ensemble"

    def __init__(self, members: Sequence[Member]) -> None:
        needs = {member.model.needs for member in members}
        if len(needs) != 1:
            names = ", ".join(sorted(f"{n.name} {n.version}" for n in needs)) or "none"
            raise ModelError(f"members of an ensemble read the same features, but got {names}")
        self.members = tuple(members)
        self.needs = needs.pop()
        self.platforms = members[0].model.platforms

    def opinions(self, inputs: Any, platform: str) -> Floats32:
        return self._together(platform, lambda model: model.opinions(inputs, platform))

    def speeds(self, inputs: Any, platform: str) -> Floats32:
        return self._together(platform, lambda model: model.speeds(inputs, platform))

    def by_member(self, inputs: Any, platform: str) -> Floats32:
        known = [m.model for m in self.members if platform in m.model.platforms]
        return np.concatenate([model.by_member(inputs, platform) for model in known], axis=1)

    def _together(self, platform: str, ask: Callable[[Model], Floats32]) -> Floats32:
        self.head_index(platform)
        return np.concatenate(
            [
                np.repeat(ask(member.model), member.votes, axis=1)
                for member in self.members
                if platform in member.model.platforms
            ],
            axis=1,
        )

    def member(self, kind: str) -> Member | None:
        """The member of a kind, where there is one."""
        return next((m for m in self.members if m.model.kind == kind), None)

    def section(self) -> dict[str, Any]:
        return {
            "members": [
                {
                    "kind": member.model.kind,
                    "votes": member.votes,
                    "platforms": list(member.model.platforms),
                    "section": member.model.section(),
                }
                for member in self.members
            ]
        }

    def tensors(self, *, half: bool) -> Tensors:
        return {
            f"{k}/{name}": tensor
            for k, member in enumerate(self.members)
            for name, tensor in member.model.tensors(half=half).items()
        }

    @classmethod
    def build(
        cls, platforms: tuple[str, ...], section: Mapping[str, Any], tensors: Tensors
    ) -> Self:
        members = []
        for k, entry in enumerate(section["members"]):
            own = {
                name.removeprefix(f"{k}/"): tensor
                for name, tensor in tensors.items()
                if name.startswith(f"{k}/")
            }
            model = model_class(entry["kind"]).build(
                tuple(entry["platforms"]), entry["section"], own
            )
            votes = int(entry["votes"])
            if not 0 < votes <= MOST_VOTES:
                raise ModelError(f"a member has 1 to {MOST_VOTES} votes, but got {votes}")
            members.append(Member(model=model, votes=votes))
        ensemble = cls(members)
        if ensemble.platforms != platforms:
            raise ModelError(f"the folder names {platforms}, but its members {ensemble.platforms}")
        return ensemble
