"""Damage, by chance: to bytes, to JSON, to the members of an archive."""

from __future__ import annotations

import io
import json
import random
import re
import zipfile
from typing import Any

_JUNK: tuple[Any, ...] = (
    *(None, [], {}, "", "x", "../../x", "\ud800", True, -1, 0, 1, 7, 2**31, 2**63, -(2**63)),
    *(10**30, 20_000, 1e308, 1e-320, float("nan"), float("inf"), -float("inf")),
    *([[]], {"a": None}, [1] * 1000, "9" * 300, 0.5),
)
_NUMBERS = (b"9" * 30, b"-1", b"0", b"NaN", b"1e999", b"4294967296", b"null", b'"x"', b"[]")
_NUMBER = re.compile(rb"-?\d+(\.\d+)?(e-?\d+)?")


def damaged_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flipped bits, cut, repeated, overwritten, or with another number somewhere."""
    if not data:
        return rng.randbytes(rng.randrange(64))
    at = rng.randrange(len(data))
    length = min(rng.choice((1, 2, 8, 64, 1024)), len(data) - at)
    match rng.randrange(7):
        case 0 | 1:
            return flipped(data, rng)
        case 2:
            return data[:at]
        case 3:
            return data[:at] + data[at + length :]
        case 4:
            return data[:at] + data[at : at + length] * rng.choice((2, 3)) + data[at + length :]
        case 5:
            return data[:at] + rng.randbytes(length) + data[at + length :]
        case _:
            found = _NUMBER.search(data, at) or _NUMBER.search(data)
            if found is None:
                return flipped(data, rng)
            return data[: found.start()] + rng.choice(_NUMBERS) + data[found.end() :]


def flipped(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def damaged_value(value: Any, rng: random.Random) -> Any:
    """With one place of a JSON value gone, or replaced by something else."""
    if isinstance(value, (dict, list)) and value and rng.random() < 0.9:
        key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
        copy: Any = dict(value) if isinstance(value, dict) else list(value)
        if rng.random() < 0.12:
            del copy[key]
        else:
            copy[key] = damaged_value(value[key], rng)
        return copy
    if isinstance(value, str) and value[:1] in "[{" and value and rng.random() < 0.8:
        return _damaged_text(value, rng)
    return rng.choice(_JUNK)


def _damaged_text(text: str, rng: random.Random) -> str:
    """JSON inside JSON."""
    try:
        return json.dumps(damaged_value(json.loads(text), rng))
    except ValueError:
        return text[: rng.randrange(len(text))]


def damaged_json(data: bytes, rng: random.Random) -> bytes:
    """Of one value, or of one a line."""
    try:
        return json.dumps(damaged_value(json.loads(data), rng)).encode()
    except ValueError:
        pass
    lines = data.splitlines()
    if not lines:
        return damaged_bytes(data, rng)
    at = rng.randrange(len(lines))
    try:
        lines[at] = json.dumps(damaged_value(json.loads(lines[at]), rng)).encode()
    except ValueError:
        return damaged_bytes(data, rng)
    return b"\n".join(lines) + b"\n"


def damaged_archive(data: bytes, rng: random.Random) -> bytes:
    """A whole zip archive with one damaged member."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {info: archive.read(info) for info in archive.infolist()}
    chosen = rng.choice(list(members))
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for info, content in members.items():
            if info is chosen:
                is_json = info.filename.endswith(".json") and rng.random() < 0.8
                content = (damaged_json if is_json else damaged_bytes)(content, rng)
            archive.writestr(info.filename, content)
    return made.getvalue()
