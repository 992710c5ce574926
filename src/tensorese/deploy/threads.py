"""The threads a library runs with inside somebody else's process.

TVM would use half the cores, and where the calling thread roams it shares a worker's core now
and then. Pinning the caller for good would be rude: it is pinned for the length of a call.
"""

from __future__ import annotations

import os
import threading
import warnings
from typing import Any, Self

from tensorese.targets import usable_cores
from tensorese.tvm_env import import_tvm, set_threads

_ASKED = "TVM_NUM_THREADS"
_MINE = threading.local()  # `core`: where this thread runs its part, once its pool has started


class Pool:
    """TVM keeps one pool a calling thread; entering this starts and pins the current one's."""

    def __init__(self, threads: int, *, pin: bool) -> None:
        self.threads = threads
        self.pin = pin
        if _ASKED not in os.environ:  # whoever set it knows what else runs here
            set_threads(threads)

    def __enter__(self) -> Self:
        if not hasattr(_MINE, "core"):
            _MINE.core = self._start()
        if self.pin:
            _MINE.before = os.sched_getaffinity(0)
            os.sched_setaffinity(0, _MINE.core)
        return self

    def __exit__(self, *_error: object) -> None:
        if self.pin:
            os.sched_setaffinity(0, _MINE.before)

    def _start(self) -> set[int]:
        """Starts the workers, one a core but the caller's; returns the caller's core."""
        cores = usable_cores()
        wanted = min(self.threads, len(cores))
        before = set(os.listdir("/proc/self/task"))
        tvm: Any = import_tvm()
        tvm.get_global_func("runtime.config_threadpool")(1, wanted)
        started = sorted(set(os.listdir("/proc/self/task")) - before, key=int)
        if int(tvm.runtime.num_threads()) < wanted:
            warnings.warn(
                f"TVM runs {tvm.runtime.num_threads()} threads here, but the library was tuned "
                f"for {wanted}: TVM was used before, or {_ASKED} is set; load the library first",
                RuntimeWarning,
                stacklevel=4,
            )
        if self.pin:
            for thread, core in zip(started, cores[1:], strict=False):
                os.sched_setaffinity(int(thread), {core})
        return set(cores[:1])
