"""A sketch read for its physical features alone: no matrix, no vocabulary, no template."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tensorese.features.matrix import Context
from tensorese.features.physics import Machine, meaning_of
from tensorese.features.tiling import read_tiling
from tensorese.language.plan import read_plan
from tensorese.language.skeleton import Slots, candidates_of


class Reading:
    """`features` are those that a model's template puts before its cells."""

    def __init__(
        self, machine: Machine, dialect: str, body: str, slots: Slots, context: Context
    ) -> None:
        self.n_decisions = sum(1 if length < 0 else length for _, length in slots)
        tables = {} if dialect == "ansor" else candidates_of(body, slots)
        self._tables = {
            decision: np.asarray(table, dtype=np.float64)
            for decision, table in tables.items()
            if all(isinstance(item, int | float) for item in table)
        }
        self._meaning = meaning_of(
            machine,
            read_tiling(dialect, body, slots),
            read_plan(dialect, body, slots),
            context.shapes,
            context.blocks,
        )

    def features(self, decisions: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """`[n, features]` from decisions `[n, d]`."""
        rows = np.asarray(decisions, dtype=np.int64)
        rows = rows.reshape(len(rows), self.n_decisions)
        values = rows.astype(np.float64)
        for decision, table in self._tables.items():
            values[:, decision] = table[rows[:, decision]]
        return self._meaning.features(values)
