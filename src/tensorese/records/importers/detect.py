"""Which reader a path needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tensorese.errors import ImportFormatError, did_you_mean
from tensorese.records.importers.ansor import read_ansor
from tensorese.records.importers.lines import Skipped, json_lines
from tensorese.records.importers.metaschedule import database_files, read_metaschedule
from tensorese.records.nouns import Measurement

FORMATS: dict[str, Callable[[Path, str, Skipped], Iterator[Measurement]]] = {
    "ansor": read_ansor,
    "metaschedule": read_metaschedule,
}


def read_records(
    path: Path, platform: str, format_: str = "auto", skipped: Skipped | None = None
) -> Iterator[Measurement]:
    """Measurements of a file or database folder, one at a time."""
    if format_ not in ("auto", *FORMATS):
        raise ImportFormatError(
            f"the format must be auto, {' or '.join(FORMATS)}, but got {format_!r}"
            f"{did_you_mean(format_, FORMATS)}"
        )
    if not path.exists():
        raise ImportFormatError(f"a path to import must exist, but {path} does not")
    if format_ == "auto":
        format_ = _detect(path)
    return FORMATS[format_](path, platform, skipped or Skipped())


def _detect(path: Path) -> str:
    if path.is_dir():
        database_files(path)  # refuses a folder that is no database
        return "metaschedule"
    _, first = next(json_lines(path, Skipped()), (0, None))
    if first is None:
        raise ImportFormatError(f"{path} must hold records, but it has no line of JSON")
    return "ansor" if _is_ansor(first) else "metaschedule"


def _is_ansor(line: Any) -> bool:
    if isinstance(line, dict) and {"i", "r"} <= line.keys():
        return True
    if isinstance(line, list) and len(line) == 2:
        return False
    raise ImportFormatError(
        "the first line is neither an Ansor record {'i':…,'r':…} nor a MetaSchedule record "
        "[workload,[…]]; name the file of records"
    )
