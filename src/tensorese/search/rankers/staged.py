"""A cheap ranker drafts, a dear one judges the short list: who lowers programs, lowers few."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tensorese.records.nouns import Measurement, Sketch, Workload
from tensorese.search.contracts import Ranker

LEAST = 4


class Staged:
    """The best of the draft are ordered by `verify` and come before all others: at most `keep`, and
    no larger a share than `share`, of which `LEAST` are always allowed."""

    def __init__(self, draft: Ranker, verify: Ranker, keep: int, share: float = 1.0) -> None:
        if keep < 1:
            raise ValueError(f"at least one program must be kept, got keep={keep}")
        self.draft, self.verify, self.keep, self.share = draft, verify, keep, share
        self.name = verify.name
        self.needs = draft.needs

    def score(
        self, workload: Workload, platform: str, sketch: Sketch, decisions: npt.ArrayLike
    ) -> npt.NDArray[np.float32]:
        rows = np.asarray(decisions)
        scores = self.draft.score(workload, platform, sketch, rows)
        keep = min(self.keep, max(LEAST, round(self.share * len(rows))))
        best = np.argsort(-scores, kind="stable")[:keep]
        if not len(best):
            return scores
        verified = self.verify.score(workload, platform, sketch, rows[best])
        staged: npt.NDArray[np.float32] = scores - scores.max() + verified.min() - np.float32(1.0)
        staged[best] = verified
        return staged

    def update(self, measurements: Sequence[Measurement]) -> None:
        self.draft.update(measurements)
        self.verify.update(measurements)
