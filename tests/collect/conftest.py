"""The tracker and the servers of the RPC tests are the measurers' own."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "measure"))
