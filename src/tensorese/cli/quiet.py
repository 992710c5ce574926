"""Keeps what libraries print (TVM's warnings) off the terminal and in the run's log."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

LOG = "log.txt"


class LibraryLog:
    """Where the process's error stream goes meanwhile; `keep` puts it into a run folder."""

    def __init__(self, file: tempfile._TemporaryFileWrapper[bytes]) -> None:
        self._file = file

    def keep(self, run: Path) -> None:
        self._file.flush()
        with Path(self._file.name).open("rb") as source, (run / LOG).open("ab") as log:
            shutil.copyfileobj(source, log)


@contextlib.contextmanager
def libraries_logged() -> Iterator[LibraryLog]:
    """The error stream as C++ and child processes see it goes to a file; ours stays where it is."""
    sys.stderr.flush()
    terminal, python_stream = os.dup(2), sys.stderr
    with (
        tempfile.NamedTemporaryFile(prefix="tensorese-", suffix=".log") as file,
        os.fdopen(os.dup(terminal), "w", buffering=1) as ours,
    ):
        os.dup2(file.fileno(), 2)
        if _is_stream_2(python_stream):  # else somebody has already put another one there
            sys.stderr = ours
        try:
            yield LibraryLog(file)
        finally:
            ours.flush()
            sys.stderr = python_stream
            os.dup2(terminal, 2)
            os.close(terminal)


def _is_stream_2(stream: object) -> bool:
    try:
        return int(stream.fileno()) == 2  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return False
