"""How the parts of a network are computed that may be computed in more than one way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

Key = tuple[int, ...]
"""Of a convolution, its output shape and its input channels; of an attention, its heads, queries,
keys, dimensions of a query and of a value, and whether it has a mask."""


@dataclass(frozen=True)
class Choice:
    """By key: the m of F(m x m, 3 x 3), 0 for a direct convolution; 1 for an attention that is one
    kernel, 0 for one operator by operator. As it was measured, or else as it is estimated."""

    measured: Mapping[Key, int] = field(default_factory=dict)
    asked: Counter[Key] = field(default_factory=Counter, compare=False)
    """What had the choice, and how often each."""

    def way(self, key: Key, estimate: int) -> int:
        return self.measured.get(key, estimate)


def is_convolution(key: Key) -> bool:
    return len(key) == 5
