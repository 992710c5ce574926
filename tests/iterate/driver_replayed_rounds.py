"""Rounds over stored measurements, slow enough to be killed; the folder is the argument."""

from __future__ import annotations

import sys
from pathlib import Path

from rounds_support import records, run_rounds

if __name__ == "__main__":
    run_rounds(Path(sys.argv[1]), records(), secs=0.06)
