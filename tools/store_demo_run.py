"""Stores what the report of a run needs, for `tensorese dashboard --demo`:

python tools/store_demo_run.py RUN
"""

from __future__ import annotations

import sys
from pathlib import Path

from tensorese.report.gather import Parts
from tensorese.report.replay import DEMO, store

if __name__ == "__main__":
    store(Parts.read(Path(sys.argv[1])), DEMO)
    print(f"{DEMO}: {DEMO.stat().st_size:,} bytes")
