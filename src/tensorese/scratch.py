"""Temporary folders that are removed even when their process was killed.

Each holds a file that its process keeps locked: whoever makes the next one removes those that
nobody holds. The lock is the kernel's and ends with the process; a pid might be somebody else's,
in another container that shares the folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

LOCK = ".lock"


class Scratch:
    """A folder of our own until `close`."""

    def __init__(self, prefix: str) -> None:
        """Raises OSError where none can be made."""
        remove_left(prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        held = self.path / f"{LOCK}.new"  # named once it is locked: until then nobody looks
        self._fd = os.open(held, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_SH)
        held.rename(self.path / LOCK)

    def close(self) -> None:
        if self._fd >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_error: object) -> None:
        self.close()


def remove_left(prefix: str) -> None:
    """Folders with this prefix, of this user, that no process holds any more."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError), _unheld(folder):
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _unheld(folder: Path) -> Iterator[None]:
    """Raises OSError for a folder that is in use, or not one of these."""
    fd = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)
