"""`write_report`: one self-contained HTML file of a run folder."""

from __future__ import annotations

import os
from pathlib import Path

from tensorese.records.run_folder import REPORT, RunFolderError, write_text
from tensorese.report.gather import gather
from tensorese.report.page import page

_WRONG = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a damaged file's JSON comes to."""


def write_report(run: str | os.PathLike[str]) -> Path:
    """Draws what the folder holds, finished or not; returns the file."""
    folder = Path(run)
    path = folder / REPORT
    try:
        text = page(gather(folder))
        text.encode()
    except _WRONG as error:
        raise RunFolderError(
            f"{folder} must be a run folder of this version to be drawn, but one of its files "
            f"lacks or garbles something ({type(error).__name__}); tune into a new folder"
        ) from error
    write_text(path, text)
    return path
