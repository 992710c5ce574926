"""Temporary folders of killed processes are removed by the next one; those in use are not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tensorese.scratch import Scratch

pytestmark = pytest.mark.null

PREFIX = "tensorese-test-"
HOLD = (
    "import sys; from tensorese.scratch import Scratch\n"
    f"print(Scratch({PREFIX!r}).path, flush=True); sys.stdin.read()"
)


def test_what_a_killed_process_left_goes_with_the_next_start() -> None:
    pipe, folder = subprocess.PIPE, None
    with subprocess.Popen([sys.executable, "-c", HOLD], stdin=pipe, stdout=pipe, text=True) as one:
        assert one.stdout is not None
        with Scratch(PREFIX) as first:
            (first / "file").write_text("mine")
            assert first.is_dir()
            theirs = one.stdout.readline().strip()
            with Scratch(PREFIX) as second:
                held = {path.name for path in second.parent.glob(f"{PREFIX}*")}
            assert {first.name, theirs.rpartition("/")[2]} <= held
        assert not first.exists()
        one.kill()
        one.wait()
        folder = first.parent / theirs.rpartition("/")[2]
        assert folder.is_dir(), "a killed process cleans nothing up"
        with Scratch(PREFIX):
            assert not folder.exists()
