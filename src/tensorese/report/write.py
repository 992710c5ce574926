"""`write_report`: one self-contained HTML file of a run folder."""

from __future__ import annotations

import os
from pathlib import Path

from tensorese.records.journal import write_error
from tensorese.report.gather import gather
from tensorese.report.page import page

REPORT = "report.html"


def write_report(run: str | os.PathLike[str]) -> Path:
    """Draws what the folder holds, finished or not; returns the file."""
    folder = Path(run)
    text = page(gather(folder))
    path = folder / REPORT
    aside = folder / f".{REPORT}.{os.getpid()}"
    try:
        aside.write_text(text)
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise write_error(path, error) from error
    return path
