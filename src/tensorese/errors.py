"""The one error root: what the command line prints as a single line, exit code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TensoreseError(Exception):
    """A user's mistake or a refused input; the message states rule, value and remedy."""

    options: str = ""
    """What the message ends with, where that makes the same command work: options to add to it."""


class StoreError(TensoreseError):
    """A record store that cannot be read or written as asked."""


class ImportFormatError(TensoreseError):
    """A foreign file that is not what it was said to be."""


class TargetError(TensoreseError):
    """A target that TVM, this build or this machine does not have."""


class MeasureError(TensoreseError):
    """Measuring as a whole cannot go on (a single bad candidate never raises)."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for a near miss, else the empty string."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
