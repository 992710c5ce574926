"""MTL-TLP: one trunk for all platforms, one head for each, keyed by the platform's name.

Any platform may lack any label; a platform that came later gets its head with `add_head`.
"""

from __future__ import annotations

import copy
from typing import ClassVar

from torch import Tensor

from tensorese.models.tlp import TLP, Member, ModelError, make_head


class MTLTLP(TLP):
    kind: ClassVar[str] = "mtl-tlp"

    def add_head(self, platform: str, *, like: str | None = None) -> None:
        """A fresh head, or a copy of the head of the platform it is `like`."""
        if platform in self.platforms:
            raise ModelError(f"each platform has one head, but {platform!r} has one already")
        place = None if like is None else self.head_index(like)
        device = next(self.parameters()).device
        for member in self.members:
            assert isinstance(member, Member)
            old = None if place is None else member.heads[place]
            head = make_head(member.config) if old is None else copy.deepcopy(old)
            member.heads.append(head.to(device))
        self.platforms = (*self.platforms, platform)

    def with_head(self, platform: str) -> TLP:
        """A plain TLP of this trunk and one of its heads; weights are copied."""
        place = self.head_index(platform)
        model = TLP(self.config, (platform,)).to(next(self.parameters()).device)
        kept: dict[str, Tensor] = {}
        for name, tensor in self.state_dict().items():
            trunk, found, rest = name.partition(".heads.")
            head, _, part = rest.partition(".")
            if not found:
                kept[name] = tensor
            elif int(head) == place:
                kept[f"{trunk}.heads.0.{part}"] = tensor
        model.load_state_dict(kept)
        return model.train(self.training)
