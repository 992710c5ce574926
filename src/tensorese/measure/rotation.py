"""Weights as a network finds them: not in the caches next to the cores.

Between two runs of a kernel a network reads all its other weights, so a kernel's own come from
the last cache or from memory. Timed again and again on the same arrays they would lie next to the
cores, and a program that reads them several times over would look as good as one that does not.
Here every run gets the next of several copies. Activations stay: the kernel before has just
written them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

SPAN = 24 << 20
"""Bytes of all copies together: well over the private caches of two cores, and no more than a
small network's weights."""
_LEAST = 32 << 10  # below, a miss on every line costs less than the noise
_MOST_COPIES = 128


def turning(sizes: Sequence[int]) -> list[int]:
    """Which arguments are weights, by their bytes: neither the first nor the last, and not tiny."""
    return [at for at in range(1, len(sizes) - 1) if sizes[at] >= _LEAST]


def copies(sizes: Sequence[int]) -> int:
    """How many sets of weights there must be; 1 when nothing turns."""
    together = sum(sizes[at] for at in turning(sizes))
    return min(_MOST_COPIES, -(-SPAN // together)) if together else 1


class Rotation:
    """Runs a program on the next set of arguments each time."""

    def __init__(self, sets: Sequence[Sequence[Any]], finish: Callable[[], None]) -> None:
        self._sets = cycle(sets)
        self._finish = finish

    def sample(self, run: Callable[..., Any], number: int, repeat: int) -> list[float]:
        """Seconds a run of each sample, `number` runs long."""
        clock = time.perf_counter
        samples = []
        for _ in range(repeat):
            chosen = [next(self._sets) for _ in range(number)]
            started = clock()
            for arguments in chosen:
                run(*arguments)
            self._finish()
            samples.append((clock() - started) / number)
        return samples
