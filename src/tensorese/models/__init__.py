"""Cost models that read schedules, and how they are kept on disk."""

from tensorese.models.folder import Card, SavedModel, load_model, save_model
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
