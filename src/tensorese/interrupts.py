"""Ctrl-C that cannot get lost.

Python raises KeyboardInterrupt wherever the main thread happens to be. Inside a destructor or a
callback of C code it is printed and dropped, and a run of an hour goes on as if nothing had been
asked. So the signal is remembered too, and loops that run for long ask for it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_asked = threading.Event()


@contextmanager
def remembered() -> Iterator[None]:
    """Inside, Ctrl-C is raised as ever, and remembered; only the main thread hears of it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        _asked.set()
        raise KeyboardInterrupt

    _asked.clear()
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _asked.clear()  # whoever collects next in this process was asked nothing


def check() -> None:
    """Raises what was asked for and got lost."""
    if _asked.is_set():
        raise KeyboardInterrupt


def forget() -> None:
    """Ctrl-C has been heeded, and work goes on."""
    _asked.clear()
