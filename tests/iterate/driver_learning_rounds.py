"""Rounds with a real learning process, slow enough to be killed; the folder is the argument."""

from __future__ import annotations

import sys
from pathlib import Path

from learning_support import run_learning, stored

if __name__ == "__main__":
    run_learning(Path(sys.argv[1]), stored(), secs=0.03)
