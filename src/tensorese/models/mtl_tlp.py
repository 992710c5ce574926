"""MTL-TLP: one trunk for all platforms, one head for each, keyed by the platform's name.

Any platform may lack any label; a platform that came later gets its head with `add_head`.
"""

from __future__ import annotations

import copy
from typing import ClassVar

from torch import nn

from tensorese.models.tlp import TLP, ModelError, make_head


class MTLTLP(TLP):
    kind: ClassVar[str] = "mtl-tlp"

    def add_head(self, platform: str, *, like: str | None = None) -> nn.Module:
        """A fresh head, or a copy of the head of the platform it is `like`."""
        if platform in self.platforms:
            raise ModelError(f"each platform has one head, but {platform!r} has one already")
        if like is None:
            head = make_head(self.config.trunk)
        else:
            head = copy.deepcopy(self.heads[self.head_index(like)])
        device = next(self.parameters()).device
        self.heads.append(head.to(device))
        self.platforms = (*self.platforms, platform)
        return head
