"""How numbers and names are written on the page."""

from __future__ import annotations

import math
from html import escape
from typing import Any


def ms(secs: float, digits: int = 4) -> str:
    """`10.66 ms`, `0.01975 ms`: so many significant digits, never an exponent."""
    return f"{significant(secs * 1e3, digits)} ms" if math.isfinite(secs) else "-"


def significant(value: float, digits: int) -> str:
    if not math.isfinite(value):
        return "-"
    before_point = math.floor(math.log10(abs(value))) + 1 if value else 1
    return f"{value:.{max(0, digits - before_point)}f}"


def fixed(value: float, digits: int = 1, unit: str = "") -> str:
    return f"{value:.{digits}f}{unit}" if math.isfinite(value) else "-"


def decimals(total: float) -> int:
    """Of milliseconds in a column whose sum is `total` seconds: parts of a hundredth must show."""
    return 3 if not total < 1e-3 else 4 if total >= 1e-4 else 5


def clock(secs: Any) -> str:
    if not isinstance(secs, int | float) or not math.isfinite(secs):
        return "-"
    minutes, rest = divmod(round(secs), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def breakable(text: str) -> str:
    """A name in HTML, whose line may break behind any underscore."""
    return escape(text).replace("_", "_<wbr>")
