"""Ctrl-C that cannot get lost, and its like: SIGTERM, and SIGHUP of a terminal that closes.

Python raises KeyboardInterrupt wherever the main thread happens to be. Inside a destructor or a
callback of C code it is printed and dropped, and a run of an hour goes on as if nothing had been
asked. So the signal is remembered too, and loops that run for long ask for it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
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
    with handled(interrupt):
        try:
            yield
        finally:
            _asked.clear()  # whoever collects next in this process was asked nothing


@contextmanager
def handled(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Inside, `handler` hears whatever asks a command to end; the main thread alone may ask."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, known in before.items():
        if known is not signal.SIG_IGN:  # `nohup`
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, known in before.items():
            signal.signal(number, known)


def ignored() -> None:
    """For a child whose parent is the one to be asked."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def check() -> None:
    """Raises what was asked for and got lost."""
    if _asked.is_set():
        raise KeyboardInterrupt


def forget() -> None:
    """Ctrl-C has been heeded, and work goes on."""
    _asked.clear()
