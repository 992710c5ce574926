"""What a part of the chaos comes to, and the table of all parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

MOST_NAMED = 20
COLUMNS = ("attempts", "survived", "lost", "repeated", "tracebacks", "hangs")


@dataclass(kw_only=True)
class Outcome:
    """Attempts of one kind; what was not survived is counted as one of the other columns."""

    name: str
    attempts: int = 0
    survived: int = 0
    lost: int = 0
    """Measurements that had been acknowledged, or rows that nobody named as missing or changed."""
    repeated: int = 0
    """Measurements of a program that had one."""
    tracebacks: int = 0
    """Anything but success and one line: other exceptions, signals, a gigabyte of memory."""
    hangs: int = 0
    notes: list[str] = field(default_factory=list)

    def count(self, column: str = "", note: str = "", times: int = 1) -> None:
        """One more attempt, survived unless a column says otherwise."""
        self.attempts += 1
        if not column:
            self.survived += 1
            return
        setattr(self, column, getattr(self, column) + times)
        if len(self.notes) < MOST_NAMED:
            self.notes.append(f"{column}: {note}")

    @property
    def clean(self) -> bool:
        return self.attempts == self.survived

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def table(outcomes: Sequence[Outcome]) -> str:
    total = Outcome(name="all")
    for column in COLUMNS:
        setattr(total, column, sum(getattr(one, column) for one in outcomes))
    lines = [f"{'':<24}" + "".join(f"{column:>12}" for column in COLUMNS)]
    for one in [*outcomes, total]:
        counts = (getattr(one, column) for column in COLUMNS)
        lines.append(f"{one.name:<24}" + "".join(f"{count:>12,}" for count in counts))
    lines += [f"{one.name}: {note}" for one in outcomes for note in one.notes]
    return "\n".join(lines)
