"""Which programs of a task come next: a fixed sequence of random ones, and mutations of the best.

The sequence of a sketch depends on the task, the sketch and the seed alone. Two platforms that
offer the same sketch therefore measure the same programs of it, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tensorese.collect.replayed import replayed_rows
from tensorese.records.nouns import Workload, program_id
from tensorese.space.space import TaskSpace
from tensorese.space.variation import mutate

Pick = tuple[int, tuple[int, ...]]
"""Index of a sketch, and a row of it."""

_BLOCK = 16  # rows drawn at a time; part of what defines the sequence
_STALE = 3  # blocks without a new row after which a small sketch counts as exhausted


class Stream:
    """The programs of one task that were not handed out yet."""

    def __init__(self, space: TaskSpace, workload: Workload, seed: int) -> None:
        self.space = space
        self.workload = workload
        self.seed = seed
        self.seen: set[str] = set()
        """Program ids handed out, or known from the start."""
        self._index = {s.sketch.id: i for i, s in enumerate(space.sketches)}
        self._rows = {i: self._rows_of(i) for i in self._index.values()}

    @property
    def exhausted(self) -> bool:
        return not self._rows

    def random(self, n: int) -> list[Pick]:
        """Up to `n` new rows, sketches in turn; fewer when the task has no more."""
        picks: list[Pick] = []
        while self._rows and len(picks) < n:
            for sketch in list(self._rows):
                row = next(self._rows[sketch], None)
                if row is None:
                    del self._rows[sketch]
                elif self._take(sketch, row):
                    picks.append((sketch, row))
                if len(picks) == n:
                    break
            # The next call starts with the sketch whose turn it is.
            self._rows = _rotated(self._rows, picks[-1][0] if picks else None)
        return picks

    def mutations(self, parents: Sequence[tuple[str, Sequence[int]]], n: int) -> list[Pick]:
        """New neighbours of `(sketch id, row)` parents: one slot changed, now and then two."""
        places = [(self._index[s], row) for s, row in parents if s in self._index]
        known = [(s, row) for s, row in places if self.space.sketches[s].covered]
        if not known:
            return []
        rng = self._rng("mutation", str(len(self.seen)))
        picks: list[Pick] = []
        for attempt in range(4 * n):
            sketch, row = known[attempt % len(known)]
            space = self.space.sketches[sketch]
            varied = mutate(space, np.array([row], dtype=np.int64), rng)
            if rng.random() < 0.3:
                varied = mutate(space, varied, rng)
            values = tuple(int(v) for v in varied[0])
            if self._take(sketch, values):
                picks.append((sketch, values))
            if len(picks) == n:
                break
        return picks

    def named(self, rows: Iterable[tuple[str, Sequence[int]]]) -> list[Pick]:
        """Those of somebody else's `(sketch id, row)` that are new, and legal here."""
        picks: list[Pick] = []
        for sketch_id, row in rows:
            sketch = self._index.get(sketch_id)
            if sketch is None:
                continue
            values = tuple(int(v) for v in row)
            if self._is_legal(sketch, values) and self._take(sketch, values):
                picks.append((sketch, values))
        return picks

    def _is_legal(self, sketch: int, row: tuple[int, ...]) -> bool:
        space = self.space.sketches[sketch]
        if len(row) != space.sketch.n_decisions:
            return False
        if not space.covered:
            return self.space.is_legal(sketch, row)
        return bool(space.legal(np.array([row], dtype=np.int64))[0])

    def _take(self, sketch: int, row: Sequence[int]) -> bool:
        name = program_id(self.workload.id, self.space.sketches[sketch].sketch.id, row)
        new = name not in self.seen
        self.seen.add(name)
        return new

    def _rng(self, *words: str) -> np.random.Generator:
        entropy = [self.seed, int(self.workload.id, 16)]
        return np.random.default_rng([*entropy, *(int.from_bytes(w.encode()) for w in words)])

    def _rows_of(self, sketch: int) -> Iterator[tuple[int, ...]]:
        space = self.space.sketches[sketch]
        if not space.covered:
            yield from replayed_rows(self.space, sketch, self._rng(space.sketch.id))
            return
        mine: set[tuple[int, ...]] = set()
        block = stale = 0
        while stale < _STALE:
            before = len(mine)
            for row in space.sample(_BLOCK, self._rng(space.sketch.id, str(block))).tolist():
                values = tuple(row)
                if values not in mine:
                    mine.add(values)
                    yield values
            block += 1
            stale = stale + 1 if len(mine) == before else 0


def _rotated(
    rows: dict[int, Iterator[tuple[int, ...]]], last: int | None
) -> dict[int, Iterator[tuple[int, ...]]]:
    later = [s for s in rows if last is not None and s > last]
    return {s: rows[s] for s in [*later, *(s for s in rows if s not in later)]}
