"""Cores are claimed by one process at a time, and waited for."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from tensorese.measure.cores import alone_on

pytestmark = pytest.mark.null

HOLD = (
    "import sys; from tensorese.measure.cores import alone_on\n"
    "with alone_on([int(core) for core in sys.argv[1:]]):\n"
    "    print('held', flush=True); sys.stdin.read()"
)


def hold(*cores: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, *map(str, cores)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_one_that_wants_some_of_the_same_cores_waits_and_says_for_whom() -> None:
    said: list[str] = []
    with hold(1, 2) as other:
        threading.Timer(0.7, other.kill).start()  # kill -9 frees them
        with alone_on([0, 1], say=said.append) as waited:
            assert waited > 0.3
        assert len(said) == 1 and f"process {other.pid} on " in said[0]


def test_other_cores_and_those_who_share_do_not_wait() -> None:
    with hold(1, 2) as other:
        started = time.monotonic()
        with alone_on([0, 3]), alone_on([0, 3]):
            pass
        with alone_on([1, 2], share=True) as waited:
            assert waited < 0.1
        assert time.monotonic() - started < 0.3
        other.kill()
