"""What else ran on the machine while systems were timed."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tensorese.deploy.disturbance import Clocks, others, read_clocks, slowed, unsteady

pytestmark = pytest.mark.null


def clocks(busy: float, stolen: float, total: float, own: float) -> Clocks:
    return Clocks(busy=busy, stolen=stolen, total=total, own=own)


def test_a_quiet_machine_is_not_reproached() -> None:
    assert others(clocks(5, 0, 100, 3), clocks(14, 0.1, 120, 12)) == []


def test_other_processes_and_a_host_that_takes_cores_are_named() -> None:
    said = others(clocks(0, 0, 0, 0), clocks(15, 1, 20, 5))
    assert said == [
        "other processes took 50 % of the cores",
        "the host took 5 % of them away",
    ]


def test_the_clocks_know_a_busy_stranger_from_a_process_of_ours() -> None:
    code = "import time\nend = time.time() + 1.5\nwhile time.time() < end: pass"
    with subprocess.Popen([sys.executable, "-c", code]) as busy:
        before = read_clocks([busy.pid])
        without = read_clocks([])
        time.sleep(0.8)
        after, stranger = read_clocks([busy.pid]), read_clocks([])
        busy.wait()
    known = after.own - before.own
    assert known > 0.05 and stranger.own - without.own < known
    assert after.busy - before.busy >= 0.5 * known
    assert read_clocks([os.getpid()]).total > 0


def test_rounds_that_lie_apart_are_said() -> None:
    calm = {"latency": 1.0, "runs": 9, "spread": 0.1}
    assert unsteady({"tuned": calm, "torch": {**calm, "runs": 1, "spread": 3.0}}) == []
    assert unsteady({"tuned": {**calm, "spread": 0.4}}) == [
        "the rounds of tuned lie over 25 % apart"
    ]


def test_kernels_that_are_all_slower_than_when_tuned_are_said() -> None:
    rows = [{"secs": 2.3, "promised": 1.0}, {"secs": 4.6, "promised": 2.0}]
    assert slowed(rows) == ["tuned kernels take 2.3 times what they took when they were tuned"]
    one_only = [{"secs": 2.3, "promised": 1.0}] + [{"secs": 1.0, "promised": 1.0}] * 2
    assert slowed(one_only) == [] and slowed([{"secs": 9.0, "promised": None}]) == []
