"""Run by test_killed_parent: measures a fixed list of programs into a store, acknowledging each.

Usage: python driver_killed_parent.py STORE. Prints `ack PROGRAM` after a result was handed out.
"""

from __future__ import annotations

import sys
from pathlib import Path

import farm_support as programs
from tensorese.measure.config import FarmConfig
from tensorese.measure.farm import Farm
from tensorese.measure.session import MeasuredTally, measure_new
from tensorese.records.store import Store


def acknowledge(tally: MeasuredTally) -> None:
    print("ack", tally.measured[-1].program.id, flush=True)


def main(path: Path) -> None:
    target = programs.host_target()
    platform = target.platform()
    candidates = [c for n in range(16, 176, 32) for c in programs.good(n=n)]
    with (
        Store.open(path, create=True) as store,
        Farm(target, FarmConfig(verify="none"), platform=platform, journal=store) as farm,
    ):
        tally = measure_new(farm, store, platform.name, candidates, acknowledge)
    print("done", tally.known + len(tally.measured), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
