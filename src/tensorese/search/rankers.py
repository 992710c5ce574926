"""What `--model` means: `none`, `auto` or a trained model's folder, as a ranker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tensorese.records.nouns import Measurement, Sketch, Workload
from tensorese.search.base import Ranker
from tensorese.search.online import OnlineRanker
from tensorese.search.tuning_config import TuneError

SHIPPED = Path(__file__).parents[1] / "models" / "shipped"
"""Trained models that come with the package, one folder a platform."""


class Frozen:
    """A trained model that stays as it is during a run."""

    needs = "decisions"

    def __init__(self, folder: Path) -> None:
        # torch takes seconds to import: nobody waits for it who does not use a model.
        from tensorese.models.folder import load_model
        from tensorese.models.ranker import TLPRanker

        saved = load_model(folder)
        self.name = f"{saved.model.kind}:{folder.name}"
        self._ranker = TLPRanker(saved.model)

    def score(
        self, workload: Workload, platform: str, sketch: Sketch, decisions: npt.ArrayLike
    ) -> npt.NDArray[np.float32]:
        return self._ranker.score(workload, platform, sketch, decisions)

    def update(self, measurements: Sequence[Measurement]) -> None:
        """It does not learn."""


def ranker_named(spec: str, platform: str) -> tuple[Ranker, str]:
    """The ranker, and a line for people on what was chosen."""
    if spec == "none":
        return OnlineRanker(), ""
    if spec == "auto":
        folder = SHIPPED / platform
        if not folder.is_dir():
            said = f"no trained model is shipped for {platform}: learning from this run alone"
            return OnlineRanker(), said
        return Frozen(folder), f"ranking with the model shipped for {platform}"
    folder = Path(spec)
    if not folder.is_dir():
        raise TuneError(f"--model must be auto, none or a model's folder, but {spec!r} is none")
    return Frozen(folder), f"ranking with {folder}"
