"""What `--model` means: `none`, `auto` or a trained model's folder, as a ranker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tensorese.models.catalog import choose
from tensorese.models.disk import read_config
from tensorese.models.physics_net import SmallModel, is_small
from tensorese.records.nouns import Measurement, Platform, Sketch, Workload
from tensorese.search.contracts import Ranker
from tensorese.search.loop.config import TuneError
from tensorese.search.rankers.guided import AutoRanker, GuidedRanker
from tensorese.search.rankers.online import OnlineRanker


class Frozen:
    """A trained model that stays as it is during a run."""

    needs = "decisions"

    def __init__(self, folder: Path) -> None:
        # torch takes seconds to import: nobody waits for it who does not use such a model.
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


def ranker_named(
    spec: str, platform: Platform, folders: Sequence[Path] | None = None
) -> tuple[Ranker, str]:
    """The ranker, and a line for people on what was chosen; `folders` are where `auto` looks."""
    if spec == "none":
        return OnlineRanker(), ""
    if spec == "auto":
        choice = choose(platform, folders)
        if choice is None:
            kind = f"no trained model is of {platform.name}'s kind"
            return OnlineRanker(), f"{kind}: learning from this run alone"
        said = f"starting from the model {choice.folder.name} ({choice.why})"
        return guided(choice.folder, choice.head), said
    folder = Path(spec)
    if not folder.is_dir():
        raise TuneError(f"--model must be auto, none or a model's folder, but {spec!r} is none")
    config = read_config(folder)
    if is_small(config):
        head = platform.name if platform.name in config["platforms"] else config["platforms"][0]
        return guided(folder, head), f"starting from {folder}, its head {head}"
    return Frozen(folder), f"ranking with {folder}"


def guided(folder: Path, head: str) -> AutoRanker:
    return AutoRanker(GuidedRanker(SmallModel(folder), head))
