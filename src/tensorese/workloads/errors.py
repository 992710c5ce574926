"""What a refused model raises."""

from __future__ import annotations

from tensorese.errors import TensoreseError


class ModelError(TensoreseError):
    """A model that is none, that cannot be read safely, or that TVM cannot take."""
