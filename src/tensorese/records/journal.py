"""The append-only journal: one flushed, checksummed line per entry.

A line is the CRC-32 of its JSON in eight hex digits, a space, the JSON and a newline. It is in
the kernel's hands before `write` returns, so killing the process loses nothing that was
acknowledged; `close` also forces it to the disk. A writer holds its file with `flock`: a journal
that is not locked has no writer any more.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import uuid
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorese.errors import StoreError
from tensorese.records.nouns import canonical_json

PATTERN = "journal-*.log"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something found wrong in a store, named so that a person can look at it."""

    file: str
    what: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}" if self.line else f"{self.file}: {self.what}"


def write_error(path: Path, error: OSError) -> StoreError:
    """The one-line refusal for a failed write: what, where, and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreError(
            f"writing to {path} needs free disk space, but there is none; free some and run "
            "again: everything acknowledged before is kept"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StoreError(f"{path} must be writable, but it is not; check its permissions")
    return StoreError(f"cannot write to {path}: {os.strerror(error.errno or 0)}")


def encode_line(entry: dict[str, Any]) -> bytes:
    text = canonical_json(entry).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def decode_line(line: bytes) -> dict[str, Any] | None:
    """The entry, or None when the checksum or the form does not hold."""
    checksum, _, text = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        return None
    try:
        entry = json.loads(text)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


class FileLock:
    """An exclusive `flock`; a file of our own that nobody else removes while we hold it."""

    def __init__(self, path: Path, *, create: bool, wait: bool = False) -> None:
        """Raises BlockingIOError when another holds it and `wait` is off."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self.path = path
        self.fd = os.open(path, flags, 0o644)
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            os.close(self.fd)
            raise

    def still_named(self) -> bool:
        """False when the path was removed or replaced between open and lock."""
        try:
            return os.path.samestat(os.fstat(self.fd), os.stat(self.path))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        if self.fd >= 0:
            # Forked children share the lock through their copy of the file: closing ours alone
            # would leave it held.
            fcntl.flock(self.fd, fcntl.LOCK_UN)
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class JournalWriter:
    """One file per writer, so that writers never wait for each other."""

    def __init__(self, folder: Path) -> None:
        while True:
            path = folder / f"journal-{uuid.uuid4().hex}.log"
            lock = FileLock(path, create=True, wait=True)
            if lock.still_named():  # a compaction may have taken the empty file for a dead one
                break
            lock.close()
        self.path = path
        self.pid = os.getpid()
        self._lock = lock
        self._size = 0

    def write(self, entries: Iterable[dict[str, Any]]) -> None:
        """All of the entries or, on a failed write, none of them."""
        data = memoryview(b"".join(encode_line(entry) for entry in entries))
        size = self._size + len(data)
        try:
            while data:
                data = data[os.write(self._lock.fd, data) :]
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._lock.fd, self._size)
            raise write_error(self.path, error) from error
        self._size = size

    def close(self) -> None:
        if self._lock.fd >= 0:
            with suppress(OSError):  # every line was acknowledged by its own write
                os.fsync(self._lock.fd)
            if self._size == 0:
                self.path.unlink(missing_ok=True)
            self._lock.close()


class JournalReader:
    """Follows one journal: each `refresh` reads only what was written since."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[Problem] = []
        self.corrupt = 0
        self._offset = 0
        self._line = 0

    def refresh(self) -> list[dict[str, Any]]:
        """New entries. Corrupt lines are skipped, counted and named; a torn tail is cut off."""
        with self.path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        entries = []
        complete = data.rfind(b"\n") + 1
        for line in data[:complete].split(b"\n")[:-1]:
            self._line += 1
            entry = decode_line(line)
            if entry is None:
                self.corrupt += 1
                self._report("corrupt line skipped (its checksum does not hold)", self._line)
            else:
                entries.append(entry)
        self._offset += complete
        if complete < len(data):
            self._repair_tail(len(data) - complete)
        return entries

    def _repair_tail(self, torn: int) -> None:
        """Cuts half a line off, unless its writer is alive and about to finish it."""
        what = f"torn last line of {torn} bytes"
        try:
            with FileLock(self.path, create=False) as lock:
                if os.fstat(lock.fd).st_size != self._offset + torn:
                    return
                os.ftruncate(lock.fd, self._offset)
                self._report(f"{what} cut off (its writer died mid-line)", self._line + 1)
        except BlockingIOError:
            return
        except OSError:
            self._report(f"{what} left out (the store is read-only)", self._line + 1)

    def _report(self, what: str, line: int) -> None:
        problem = Problem(file=self.path.name, line=line, what=what)
        if problem not in self.problems:
            self.problems.append(problem)
