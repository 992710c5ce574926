"""The rows a search has scored in one sketch: all by their hash, the best as they are.

A million rows of thirty columns are 240 MB, their hashes 8: memory stays bounded however many are
scored, and so does the time it takes to tell whether a row was there before.
"""

from __future__ import annotations

import numpy as np

from tensorese.arrays import Floats64, Ints
from tensorese.search.contracts import Ranker, TaskState
from tensorese.search.proposers.pool import Keys, Scored, distinct, row_keys, score
from tensorese.space.tiles import Bools

CHUNK = 16_384
"""The most rows that are bred and scored at once."""


class KeySet:
    """Hashes in sorted runs, each at least twice as long as the next: adding n takes n log n."""

    def __init__(self) -> None:
        self._runs: list[Keys] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def lacks(self, keys: Keys) -> Bools:
        absent = np.ones(len(keys), dtype=np.bool_)
        for run in self._runs:
            at = np.minimum(np.searchsorted(run, keys), len(run) - 1)
            absent &= run[at] != keys
        return absent

    def add(self, keys: Keys) -> None:
        """Keys that are not in it, no two alike."""
        run = np.sort(keys)
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]))
        if len(run):
            self._runs.append(run)


class Leaders:
    """Scores rows and keeps the `most` best of them, in the order they came."""

    def __init__(self, state: TaskState, ranker: Ranker, sketch: int, most: int) -> None:
        self.state, self.ranker, self.sketch, self.most = state, ranker, sketch, most
        width = state.space.sketches[sketch].sketch.n_decisions
        self.rows: Ints = np.zeros((0, width), dtype=np.int64)
        self.scores: Floats64 = np.zeros(0)
        self._known = KeySet()

    @property
    def n_scored(self) -> int:
        return len(self._known)

    def unknown(self, rows: Ints) -> Ints:
        """The distinct rows that were not scored yet, in the order they first appear."""
        rows, _ = distinct(rows)
        return rows[self._known.lacks(row_keys(rows))]

    def see(self, rows: Ints) -> None:
        """Scores what is unknown."""
        rows = self.unknown(rows)
        if not len(rows):
            return
        self._known.add(row_keys(rows))
        self.rows = np.vstack([self.rows, rows])
        self.scores = np.append(self.scores, score(self.state, self.ranker, self.sketch, rows))
        if len(self.rows) > self.most + CHUNK:
            leading = np.sort(self._order()[: self.most])
            self.rows, self.scores = self.rows[leading], self.scores[leading]

    def best(self, n: int) -> Ints:
        """Best first."""
        return self.rows[self._order()[:n]]

    def scored(self) -> Scored:
        """Those of the rows kept that the task has not seen."""
        every = Scored(sketch=self.sketch, rows=self.rows, scores=self.scores)
        return every.new_to(self.state)

    def _order(self) -> Ints:
        return np.argsort(-self.scores, kind="stable")
