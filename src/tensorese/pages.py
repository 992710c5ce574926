"""Large pages for memory that is read from end to end: weights, above all.

Where the kernel gives huge pages on request only (`madvise`, the usual setting), tens of megabytes
of weights lie on small ones, and streaming through them waits for page tables. Asking costs a
millisecond a weight; a kernel that refuses leaves everything as it was.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Self

HUGE = 2 << 20
_WANTED, _AT_ONCE = 14, 25  # MADV_HUGEPAGE, MADV_COLLAPSE
_MAPS = Path("/proc/self/maps")
_LINE = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw-p \S+ 00:00 0\s*$", re.MULTILINE)

Range = tuple[int, int]


def anonymous() -> list[Range]:
    """Addresses of this process's own memory, as the kernel joins it; empty where it cannot say."""
    try:
        ranges = _LINE.findall(_MAPS.read_text())
    except OSError:
        return []
    return [(int(start, 16), int(end, 16)) for start, end in ranges]


def added(before: list[Range], after: list[Range]) -> list[Range]:
    """What of `after` was not in `before`: a mapping that grew counts with its new ends alone."""
    fresh = []
    for start, end in after:
        for low, high in sorted(before):
            if high <= start or low >= end:
                continue
            if start < low:
                fresh.append((start, low))
            start = max(start, high)
        if start < end:
            fresh.append((start, end))
    return fresh


class Fresh:
    """Everything allocated inside a `with` block, moved to huge pages at its end.

    Threads must not be started inside: their stacks would be filled too.
    """

    def __enter__(self) -> Self:
        self._before = anonymous()
        self.huge = 0
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.huge = sum(collapse(*one) for one in added(self._before, anonymous()))


def collapse(start: int, end: int) -> int:
    """Asks for huge pages inside an address range; returns the bytes that now lie on them."""
    first, last = -(-start // HUGE) * HUGE, end // HUGE * HUGE
    if first >= last:
        return 0
    library = ctypes.CDLL(None, use_errno=True)
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    library.madvise(first, last - first, _WANTED)
    done = library.madvise(first, last - first, _AT_ONCE)
    return last - first if done == 0 else 0
