"""`write_report`: one self-contained HTML file of a run folder."""

from __future__ import annotations

import os
from pathlib import Path

from tensorese.records.run_folder import REPORT, write_text
from tensorese.report.gather import gather
from tensorese.report.page import page


def write_report(run: str | os.PathLike[str]) -> Path:
    """Draws what the folder holds, finished or not; returns the file."""
    folder = Path(run)
    path = folder / REPORT
    write_text(path, page(gather(folder)))
    return path
