"""The measuring process killed with -9 at random moments: nothing lost, repeated or left over."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path

import pytest

from tensorese.records.nouns import Status
from tensorese.records.store import Store

pytestmark = pytest.mark.tvm

DRIVER = Path(__file__).with_name("driver_killed_parent.py")
N_PROGRAMS = 30  # five sizes, six factors: see driver_killed_parent


def start(store: Path, mark: str) -> subprocess.Popen[str]:
    env = {**os.environ, "TENSORESE_TEST_MARK": mark}
    return subprocess.Popen(
        [sys.executable, str(DRIVER), str(store)], env=env, stdout=subprocess.PIPE, text=True
    )


def marked(mark: str) -> list[int]:
    """Processes, of whatever parent, that inherited the mark."""
    needle = f"TENSORESE_TEST_MARK={mark}".encode()
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if needle in environ.read_bytes():
                found.append(int(environ.parent.name))
        except OSError:
            continue
    return found


def nothing_left(mark: str, within: float = 5.0) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if not marked(mark):
            return True
        time.sleep(0.05)
    return False


def kill_at_random(store: Path, rng: random.Random) -> set[str]:
    """One run, killed within a few seconds of its first result; returns what it acknowledged."""
    mark = uuid.uuid4().hex
    process = start(store, mark)
    assert process.stdout is not None
    lines: list[str] = []
    if rng.random() < 0.8:  # else: killed while it is still starting up
        lines.append(process.stdout.readline())
        time.sleep(rng.random() * 0.8)
    else:
        time.sleep(rng.random() * 3.0)
    process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate()
    lines.extend(rest.splitlines())
    assert nothing_left(mark), f"left behind: {marked(mark)}"
    return {line.split()[1] for line in lines if line.startswith("ack ")}


def check_kills(tmp_path: Path, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    path = tmp_path / "store"
    acknowledged: set[str] = set()
    for _ in range(kills):
        acknowledged |= kill_at_random(path, rng)
        if path.exists():
            with Store.open(path, create=True) as store:
                kept = {m.program.id for m in store.measurements()}
            assert acknowledged <= kept
    finish(path, acknowledged)


def finish(path: Path, acknowledged: set[str]) -> None:
    mark = uuid.uuid4().hex
    output, _ = start(path, mark).communicate(timeout=120)
    assert f"done {N_PROGRAMS}" in output
    assert nothing_left(mark)
    with Store.open(path) as store:
        rows = list(store.measurements())
        assert not store.problems or all("torn" in str(p) for p in store.problems)
    times = Counter(m.program.id for m in rows)
    assert acknowledged <= set(times)
    assert set(times.values()) == {1}, "a program was measured twice"
    assert len(times) == N_PROGRAMS
    assert {m.status for m in rows} == {Status.OK}


def test_two_kills(tmp_path: Path) -> None:
    check_kills(tmp_path, kills=2, seed=int(time.time()))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_fifty_kills(tmp_path: Path, seed: int) -> None:
    check_kills(tmp_path, kills=5, seed=seed)
