"""What can go wrong between a run folder and a library."""

from __future__ import annotations

from tensorese.errors import TensoreseError


class DeployError(TensoreseError):
    """A run that cannot be compiled, verified, timed or loaded."""
