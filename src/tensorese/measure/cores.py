"""One farm at a time on a core: two that time programs side by side measure each other."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tensorese.records.claims import Claim, InUse
from tensorese.records.journal import write_error

_ASK_SECS = 0.2


@contextlib.contextmanager
def alone_on(
    cores: Sequence[int], *, share: bool = False, say: Callable[[str], None] = lambda text: None
) -> Iterator[float]:
    """Waits until no other process has claimed one of the cores, and claims them all.

    Yields the seconds it waited. With `share` nothing is claimed and nobody waited for. A file
    for each core, in ascending order, so that two who want some of the same never wait for each
    other.
    """
    started = time.monotonic()
    with contextlib.ExitStack() as claims:
        for core in [] if share else sorted(cores):
            claims.enter_context(_claimed(core, say))
        yield time.monotonic() - started


def _claimed(core: int, say: Callable[[str], None]) -> Claim:
    path = Path(tempfile.gettempdir()) / f"tensorese-{os.getuid()}-core-{core}.lock"
    told = False
    while True:
        try:
            return Claim(path)
        except InUse as holder:
            if not told:
                told = True
                say(f"waiting for {holder}, which times programs on these cores (--share: do not)")
            time.sleep(_ASK_SECS)
        except OSError as error:
            raise write_error(path, error) from error
