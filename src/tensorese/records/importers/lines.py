"""Lines of JSON from plain, gzip and zstd files, and the refusal of anything else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tensorese.errors import ImportFormatError
from tensorese.records.nouns import Measurement

_CHUNK = 1 << 20
_COMPRESSION = {".gz": "gzip", ".zst": "zstd"}


@dataclass
class Skipped:
    """Lines that were left out because the caller asked for it; named, so they can be found."""

    allowed: bool = False
    lines: list[str] = field(default_factory=list)

    def bad_line(self, path: Path, number: int, what: str) -> None:
        if not self.allowed:
            raise ImportFormatError(
                f"{path}:{number}: {what}; cut or mend the line and import again (what was "
                "imported is not imported twice), or pass --skip-bad"
            )
        self.lines.append(f"{path}:{number}: {what}")


def open_stream(path: Path) -> Any:
    if not path.exists():
        raise ImportFormatError(f"a file of records must exist, but {path} does not")
    if path.is_dir():
        raise ImportFormatError(f"a file of records was expected, but {path} is a folder")
    try:
        return pa.input_stream(str(path), compression=_COMPRESSION.get(path.suffix))
    except OSError as error:
        raise ImportFormatError(f"{path} cannot be opened: {error.strerror or error}") from error


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines without blank ones and `#` comments."""
    number = 0
    rest = b""
    with open_stream(path) as stream:
        while True:
            try:
                chunk = stream.read(_CHUNK)
            except OSError as error:
                raise ImportFormatError(
                    f"{path} must be a whole {path.suffix} file, but it breaks off or is damaged "
                    f"after line {number}; fetch it again"
                ) from error
            *lines, rest = (rest + chunk).split(b"\n")
            if not chunk and rest:
                lines, rest = [rest], b""
            for line in lines:
                number += 1
                if text := _decode(path, number, line):
                    yield number, text
            if not chunk:
                return


def _decode(path: Path, number: int, line: bytes) -> str:
    try:
        text = line.decode().strip()
    except UnicodeDecodeError as error:
        raise ImportFormatError(
            f"{path}:{number}: records are lines of JSON text, but this is binary data; "
            "name a .json, .json.gz or .json.zst file"
        ) from error
    return "" if text.startswith("#") else text


def json_lines(path: Path, skipped: Skipped) -> Iterator[tuple[int, Any]]:
    for number, text in text_lines(path):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            skipped.bad_line(path, number, f"not a line of JSON (begins {text[:40]!r})")
            continue
        yield number, value


def read_each(
    path: Path, skipped: Skipped, read: Callable[[Any], Measurement | None], what: str
) -> Iterator[Measurement]:
    """`read` applied to every line; what it cannot take is not `what`, None is nothing to keep."""
    for number, line in json_lines(path, skipped):
        try:
            measurement = read(line)
        except (KeyError, IndexError, TypeError, ValueError):
            skipped.bad_line(path, number, f"JSON, but not {what}")
            continue
        if measurement is not None:
            yield measurement
