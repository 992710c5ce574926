"""Writers that are real processes: together, and killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tensorese.records.store import Store
from tensorese.records.verify import verify

pytestmark = pytest.mark.null

# Appends for ever, saying each id once it is acknowledged; compacts now and then.
WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from measurements_support import matmul_measurement
from tensorese.records.store import Store

store = Store.open(sys.argv[2], create=True)
compact_every, stop_after = int(sys.argv[3]), int(sys.argv[4])
n = 0
while n != stop_after:
    n += 1
    m = matmul_measurement(decisions=(n, 1, 1), size=8 * (n % 3 + 1))
    store.append(m)
    print(m.id, flush=True)
    if compact_every and n % compact_every == 0:
        store.compact()
"""
TESTS = Path(__file__).resolve().parents[1]


def start(folder: Path, *, compact_every: int = 0, stop_after: int = -1) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(TESTS), str(folder)]
    return subprocess.Popen(
        [*command, str(compact_every), str(stop_after)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def kill_after(writer: subprocess.Popen[str], seconds: float) -> list[str]:
    """The ids it acknowledged before it was killed, some time after its first."""
    assert writer.stdout is not None
    first = writer.stdout.readline()
    time.sleep(seconds)
    writer.send_signal(signal.SIGKILL)
    said = [first, *writer.stdout.readlines()]
    writer.wait()
    return [line.strip() for line in said if line.endswith("\n")]


@pytest.mark.parametrize("compact_every", [0, 5])
@pytest.mark.parametrize(
    "attempt",
    [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 25))],
)
def test_every_acknowledged_append_survives_kill_9(
    tmp_path: Path, attempt: int, compact_every: int
) -> None:
    acknowledged: list[str] = []
    chance = random.Random(attempt)
    for _ in range(2):
        writer = start(tmp_path / "store", compact_every=compact_every)
        acknowledged += kill_after(writer, chance.uniform(0.0, 0.3))
    stored = [m.id for m in Store.open(tmp_path / "store").measurements()]
    assert len(stored) == len(set(stored))
    assert set(acknowledged) <= set(stored)
    assert len(stored) <= len(acknowledged) + 2  # at most one unacknowledged per kill
    store = Store.open(tmp_path / "store")
    store.compact()
    assert verify(store)["ok"]
    assert {m.id for m in store.measurements()} == set(stored)


def test_two_writers_and_a_compactor_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    Store.open(folder, create=True)
    writers = [
        start(folder, stop_after=150),
        start(folder, stop_after=150),
        start(folder, stop_after=60, compact_every=4),
    ]
    acknowledged = [line.strip() for w in writers for line in w.communicate()[0].splitlines()]
    assert [w.returncode for w in writers] == [0, 0, 0]
    store = Store.open(folder)
    assert sorted(m.id for m in store.measurements()) == sorted(acknowledged)
    store.compact()
    assert len(list(store.measurements())) == 360
    assert store.problems == []
