"""Whole files or none: an export that fails leaves what was there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from tensorese.records.journal import write_error


@dataclass
class Exported:
    """How many records were written, and why others were not."""

    written: int = 0
    skipped: Counter[str] = field(default_factory=Counter)

    def skip(self, why: str) -> None:
        self.skipped[why] += 1


@contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """A file that takes its name when the block ends well."""
    scratch = path.with_name(path.name + ".tmp")
    try:
        with scratch.open("w") as file:
            yield file
        scratch.rename(path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise write_error(path, error) from error
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
