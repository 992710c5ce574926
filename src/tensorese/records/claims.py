"""One user at a time: a claim is an `flock` on a file that names its holder.

The kernel lifts it when the holder's process ends, however it ends; nothing is judged by a pid,
which another machine or container may use for somebody else.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from tensorese.errors import TensoreseError
from tensorese.records.journal import FileLock


class InUse(TensoreseError):
    """Somebody else holds the claim; the text says who."""


@dataclass
class _Held:
    lock: FileLock
    thread: int
    times: int = 1


_held: dict[str, _Held] = {}
_guard = threading.Lock()


class Claim:
    """Held until `close`, or until this process ends. A thread may claim what it holds again."""

    def __init__(self, path: Path) -> None:
        """Raises `InUse`, or OSError where there can be no such file."""
        self._key = os.path.realpath(path)
        self._open = True
        with _guard:
            mine = _held.get(self._key)
            if mine is not None and mine.thread == threading.get_ident():
                mine.times += 1
                return
            try:
                lock = FileLock(Path(self._key), create=True)
            except BlockingIOError:
                raise InUse(_holder(Path(self._key))) from None
            os.ftruncate(lock.fd, 0)
            os.write(lock.fd, f"process {os.getpid()} on {os.uname().nodename}\n".encode())
            _held[self._key] = _Held(lock, threading.get_ident())

    def close(self) -> None:
        with _guard:
            if not self._open:
                return
            self._open = False
            mine = _held[self._key]
            mine.times -= 1
            if not mine.times:
                del _held[self._key]
                mine.lock.close()

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def _holder(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()[:200] or "another process"
    except OSError:
        return "another process"
