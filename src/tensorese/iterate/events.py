"""What a run of rounds tells others while it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class RoundDone:
    line: Mapping[str, Any]
    """As in `curve.jsonl`."""
    of: int
    """Tasks in all; the line's sum is of those that have a valid program."""


class RoundsView:
    """Derive from it, override what you need."""

    def on_start(self, facts: Mapping[str, Any]) -> None: ...

    def on_progress(self, progress: Mapping[str, Any]) -> None:
        """Of learning: `learnt` rounds, `steps`, `loss`, `seconds_left`."""

    def on_measured(self, number: int, done: int, of: int) -> None: ...

    def on_round(self, event: RoundDone) -> None: ...

    def on_end(self, facts: Mapping[str, Any]) -> None: ...

    def on_note(self, text: str) -> None: ...
