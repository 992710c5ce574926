"""A sketch's space as integer arrays `[n, d]`: membership, legality, uniform draws.

A row is `Program.decisions`. Nothing is replayed; where a domain cannot be computed, TVM
decides each distinct case once and the answer is cached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tensorese.arrays import Ints
from tensorese.language.constants import Constants
from tensorese.language.trace import read_trace
from tensorese.records.nouns import Sketch
from tensorese.space.bundles import Bundle, find_bundles
from tensorese.space.limits import Limit
from tensorese.space.locations import Locator
from tensorese.space.slots import INLINE, Location, Slot
from tensorese.space.tiles import Bools

_BATCH = 4096
_MAX_DRAWS = 2_000_000
_RAREST = 100_000  # draws per legal row, after so many: rarer ones are not worth the wait


@dataclass(frozen=True, kw_only=True)
class DecisionSpace:
    """One sketch of a task: which rows are programs, and which of them are legal."""

    sketch: Sketch
    slots: tuple[Slot, ...]
    locators: Mapping[int, Locator] = field(default_factory=dict)
    """By the column of the location."""
    limits: tuple[Limit, ...] = ()
    constants: Constants = field(default_factory=dict)
    reason: str = ""
    """Why the integers do not decide this sketch; empty when they do."""

    @property
    def covered(self) -> bool:
        return not self.reason

    @cached_property
    def n_columns(self) -> int:
        return sum(slot.width for slot in self.slots)

    @cached_property
    def reduces_across_threads(self) -> bool:
        """There unrolling decides: TVM cannot lower such a reduction in an unrolled loop."""
        trace = read_trace(self.sketch.body, self.sketch.slots)
        return any(one.kind == "SetScope" for one in trace)

    # -- membership --------------------------------------------------------------------------

    def inside(self, rows: Ints) -> Bools:
        """Whether TVM would replay each row to itself, with innermost limits held."""
        inside = self._held(rows)
        for slot in self.locations:
            at = np.flatnonzero(inside)
            inside[at] = self._offered(slot, rows[at])
        return inside

    def _held(self, rows: Ints) -> Bools:
        """Whether tiles and choices are of their tables."""
        held = np.ones(len(rows), dtype=np.bool_)
        for slot in self.slots:
            if not isinstance(slot, Location):
                held &= slot.holds(rows)
        return held

    def legal(self, rows: Ints, *, refitted: bool = False) -> Bools:
        """Inside, and within every limit of the target. `refitted` rows have their locations
        from `refit`."""
        legal = self._held(rows) if refitted else self.inside(rows)
        at = np.flatnonzero(legal)
        legal[at] = self._within(rows[at], self.limits)
        return legal

    @cached_property
    def locations(self) -> list[Location]:
        return [slot for slot in self.slots if isinstance(slot, Location)]

    def _offered(self, slot: Location, rows: Ints) -> Bools:
        mask = self.locators[slot.column].mask(rows)
        index = rows[:, slot.column] - INLINE
        known = (index >= 0) & (index < mask.shape[1])
        offered: Bools = known & mask[np.arange(len(rows)), np.where(known, index, 0)]
        return offered

    # -- drawing -----------------------------------------------------------------------------

    def sample(self, n: int, rng: np.random.Generator) -> Ints:
        """`n` legal rows, uniform over factorisations, then over the locations they leave.

        Fewer only when the sketch has next to no legal row.
        """
        batches: list[Ints] = []
        have = drawn = 0
        while have < n and (drawn < _MAX_DRAWS or have * _RAREST > drawn):
            size = self._batch_size(n - have, have, drawn)
            rows = self.draw(size, rng)
            rows = rows[self._within(rows, [limit for limit in self.limits if not limit.replays])]
            drawn += size
            asking = [limit for limit in self.limits if limit.replays]
            if asking:  # no more rows than are wanted go to TVM, unless most of them fail
                first = rows[: 2 * (n - have)]
                drawn -= round(size * (1 - len(first) / max(1, len(rows))))
                rows = first[self._within(first, asking)]
            batches.append(rows)
            have += len(rows)
        return np.vstack(batches)[:n] if batches else np.zeros((0, self.n_columns), dtype=np.int64)

    @staticmethod
    def _batch_size(missing: int, have: int, drawn: int) -> int:
        rate = (have + 1) / (drawn + 1) if drawn else 1.0
        return int(min(max(1.2 * missing / rate, 64), 16 * _BATCH))

    @cached_property
    def _bundles(self) -> list[Bundle]:
        return find_bundles(self.slots, self.limits)

    def draw(self, n: int, rng: np.random.Generator) -> Ints:
        """`n` rows of the space; of the target's limits only products are considered yet."""
        rows = np.zeros((n, self.n_columns), dtype=np.int64)
        for bundle in self._bundles:
            bundle.fill(rows, rng)
        bundled = {one.tile.column for bundle in self._bundles for one in bundle.groups}
        for slot in self.slots:
            if isinstance(slot, Location):
                self.draw_location(slot, rows, np.arange(n), rng)
            elif slot.column not in bundled:
                picked = rng.integers(len(slot.table), size=n)
                rows[:, slot.column : slot.column + slot.width] = slot.table[picked]
        return rows

    @staticmethod
    def _within(rows: Ints, limits: Iterable[Limit]) -> Bools:
        within = np.ones(len(rows), dtype=np.bool_)
        for limit in limits:
            at = np.flatnonzero(within)
            within[at] = limit.legal(rows[at])
        return within

    def draw_location(self, slot: Location, rows: Ints, at: Ints, rng: np.random.Generator) -> None:
        if len(at):
            mask = self.locators[slot.column].mask(rows[at])
            noise = np.where(mask, rng.random(mask.shape), -1.0)
            rows[at, slot.column] = noise.argmax(1) + INLINE

    def refit(self, rows: Ints, rng: np.random.Generator) -> Ints:
        """The rows with every location that is no longer offered drawn anew."""
        rows = rows.copy()
        for slot in self.locations:
            self.draw_location(slot, rows, np.flatnonzero(~self._offered(slot, rows)), rng)
        return rows
