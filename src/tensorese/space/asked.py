"""Answers of TVM, remembered: asked once per distinct value of what they depend on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from tensorese.space.tiles import Ints

Answer = TypeVar("Answer")


@dataclass(kw_only=True)
class Asked(Generic[Answer]):
    """The answer depends on `columns`, on whether `capped` ones are 1, on products of `spans`."""

    ask: Callable[[Ints], Answer]
    """The answer for one row, given the whole row."""
    columns: tuple[int, ...] = ()
    capped: tuple[int, ...] = ()
    spans: tuple[tuple[int, ...], ...] = ()
    known: dict[tuple[int, ...], Answer] = field(default_factory=dict)

    def distinct(self, rows: Ints) -> tuple[list[Answer], Ints]:
        """The distinct answers, and for each row which of them is its own."""
        unique, first, inverse = np.unique(
            self._keys(rows), axis=0, return_index=True, return_inverse=True
        )
        answers = []
        for key, at in zip(map(tuple, unique.tolist()), first, strict=True):
            if key not in self.known:
                self.known[key] = self.ask(rows[at])
            answers.append(self.known[key])
        return answers, inverse.reshape(-1)

    def _keys(self, rows: Ints) -> Ints:
        products = [rows[:, list(span)].prod(1)[:, None] for span in self.spans]
        short = (rows[:, list(self.capped)] == 1).astype(np.int64)
        return np.hstack([rows[:, list(self.columns)], short, *products])
