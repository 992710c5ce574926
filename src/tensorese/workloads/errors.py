"""What a refused model raises."""

from __future__ import annotations

import re

from tensorese.errors import TensoreseError


class NetworkError(TensoreseError):
    """A model that is none, that cannot be read safely, or that TVM cannot take."""


class OpenShapes(NetworkError):
    """Inputs whose shape nobody has fixed, and options that fix them."""

    def __init__(self, message: str, options: str) -> None:
        super().__init__(f"{message}; for example: {options}")
        self.options = options


def first_line(error: Exception) -> str:
    """What a foreign error says, in one line; TVM spells whole operator records out."""
    text = re.sub(r'ir\.Op\(.*?name="([^"]+)".*?support_level=\d+\)', r"\1", str(error), flags=re.S)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:200] if lines else type(error).__name__
