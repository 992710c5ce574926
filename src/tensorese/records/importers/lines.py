"""Lines of JSON from plain, gzip and zstd files, and the refusal of anything else."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tensorese.errors import ImportFormatError
from tensorese.records.nouns import Measurement, canonical_json

_CHUNK = 1 << 20
MOST_LINE = 64 << 20
"""Bytes of a line: real ones have thousands."""
_PACKED, _MOST_RATIO = 256 << 20, 2000  # a packed file that holds so much is looked at closely
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
    number = read = 0
    rest = b""
    most = max(_PACKED, _MOST_RATIO * path.stat().st_size) if path.exists() else 0
    with open_stream(path) as stream:
        while True:
            try:
                chunk = stream.read(_CHUNK)
            except OSError as error:
                raise ImportFormatError(
                    f"{path} must be a whole {path.suffix} file, but it breaks off or is damaged "
                    f"after line {number}; fetch it again"
                ) from error
            read += len(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > MOST_LINE or read > most:
                raise ImportFormatError(
                    f"{path}:{number + 1}: a line has at most {MOST_LINE >> 20} MiB, and a packed "
                    f"file no more than {_MOST_RATIO} times its size, but here is more; this is "
                    "no file of records"
                )
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


_WRONG = (
    KeyError,
    IndexError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    RecursionError,
)
_MOST_DEPTH = 100
_INT64 = range(-(1 << 63), 1 << 63)


def _check(m: Measurement, known: set[str]) -> None:
    """Raises one of `_WRONG` for what a store could not hold or nobody could read again; `known`
    are ids of workloads and sketches that were looked at."""
    program, workload, sketch = m.program, m.program.workload, m.program.sketch
    whole = list(program.decisions)
    if workload.id not in known:
        whole += [n for spec in workload.args for n in spec.shape]
        _check_texts(workload.operator, workload.key, *(spec.dtype for spec in workload.args))
        _check_depth(canonical_json(workload.attributes))
    if sketch.id not in known:
        whole += [n for slot in sketch.slots for n in slot]
        _check_depth(sketch.body)
        _check_texts(sketch.body)
    if not all(type(n) is int and n in _INT64 for n in whole):
        raise ValueError("an integer of more than 64 bits, or none")
    if not all(map(math.isfinite, (*m.run_secs, m.time))):
        raise ValueError("a number that is not finite")
    _check_texts(m.platform.target, program.tail, m.error)
    for mapping in (m.timing, m.toolchain, m.verification):
        canonical_json(mapping)
    known |= {workload.id, sketch.id}


def _check_texts(*texts: Any) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise TypeError("a text that is none")
        text.encode()


def _check_depth(text: str) -> None:
    depth = 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        if depth > _MOST_DEPTH:
            raise RecursionError("deeper than any record")


def read_each(
    path: Path, skipped: Skipped, read: Callable[[Any], Measurement | None], what: str
) -> Iterator[Measurement]:
    """`read` applied to every line; what it cannot take is not `what`, None is nothing to keep."""
    known: set[str] = set()
    for number, line in json_lines(path, skipped):
        try:
            measurement = read(line)
            if measurement is not None:
                _check(measurement, known)
        except _WRONG:
            skipped.bad_line(path, number, f"JSON, but not {what}")
            continue
        if measurement is not None:
            yield measurement
