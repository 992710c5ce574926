"""Cost models that read schedules, and how they are kept on disk.

Names are imported when first asked for: what needs no torch does not wait for it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorese.models.disk import Card
    from tensorese.models.folder import SavedModel, load_model, save_model
    from tensorese.models.mtl_tlp import MTLTLP
    from tensorese.models.ranker import TLPRanker
    from tensorese.models.tlp import TLP, ModelError, TLPConfig, paper_config
    from tensorese.models.trunk import TrunkConfig

__all__ = [
    "MTLTLP",
    "TLP",
    "Card",
    "ModelError",
    "SavedModel",
    "TLPConfig",
    "TLPRanker",
    "TrunkConfig",
    "load_model",
    "paper_config",
    "save_model",
]
_HOMES = {
    "disk": ("Card",),
    "folder": ("SavedModel", "load_model", "save_model"),
    "mtl_tlp": ("MTLTLP",),
    "ranker": ("TLPRanker",),
    "tlp": ("TLP", "ModelError", "TLPConfig", "paper_config"),
    "trunk": ("TrunkConfig",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
