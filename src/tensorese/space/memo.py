"""TVM's answers, memoised: computed once per distinct value of what they depend on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from tensorese.arrays import Ints
from tensorese.space.tiles import unique_rows

Answer = TypeVar("Answer")


@dataclass(kw_only=True)
class Asked(Generic[Answer]):
    """The answer depends on `columns`, on whether `capped` ones are 1, on products of `spans`."""

    ask: Callable[[Ints], Answer]
    """The answer for one row; it takes the whole row."""
    columns: tuple[int, ...] = ()
    capped: tuple[int, ...] = ()
    spans: tuple[tuple[int, ...], ...] = ()
    known: dict[tuple[int, ...], Answer] = field(default_factory=dict)

    def distinct(self, rows: Ints) -> tuple[list[Answer], Ints]:
        """The distinct answers, and for each row which of them is its own."""
        unique, first, which = unique_rows(self._keys(rows))
        keys = list(map(tuple, unique.tolist()))
        for key, at in zip(keys, first, strict=True):
            # One by one: a search asks while programs are timed on the other cores.
            if key not in self.known:
                self.known[key] = self.ask(rows[at])
        return [self.known[key] for key in keys], which

    def _keys(self, rows: Ints) -> Ints:
        products = [rows[:, list(span)].prod(1)[:, None] for span in self.spans]
        short = (rows[:, list(self.capped)] == 1).astype(np.int64)
        return np.hstack([rows[:, list(self.columns)], short, *products])
