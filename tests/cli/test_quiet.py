"""Libraries' words go to the run's log, ours stay on the terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.null

PROGRAM = """
import os, subprocess, sys
from pathlib import Path
import click
from tensorese.cli.quiet import libraries_logged
with libraries_logged() as log:
    os.write(2, b"Warning: from C++\\n")
    subprocess.run([sys.executable, "-c", "import os; os.write(2, b'from a child\\\\n')"])
    click.echo("for people", err=True)
    print("also for people", file=sys.stderr)
    log.keep(Path(sys.argv[1]))
os.write(2, b"after it\\n")
"""


def test_only_the_log_has_what_libraries_print(tmp_path: Path) -> None:
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True
        )
        assert done.returncode == 0 and done.stdout == ""
        assert done.stderr == "for people\nalso for people\nafter it\n"
    log = (tmp_path / "log.txt").read_text()
    assert log == "Warning: from C++\nfrom a child\n" * 2
